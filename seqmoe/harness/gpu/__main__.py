"""``python -m seqmoe.harness.gpu``: what stands behind ``nox -s gpu``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from seqmoe.core.driver import CudaError, Gpus, NoGpu, probe
from seqmoe.harness.fingerprint import fingerprint
from seqmoe.harness.gpu.children import NotHere, StepFailed
from seqmoe.harness.gpu.needs import NEEDS, first_usable
from seqmoe.harness.gpu.record import CHECKS, SCHEMA, CheckRecord, checks_path
from seqmoe.harness.gpu.steps import STEPS, Step
from seqmoe.harness.record import OK, Status
from seqmoe.harness.store import Store
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.paths import Home, find_home

# How a step ends that lacks something on this machine.
_ABSENT = "not_installed"
_HOST_MEMORY = "45 GB of free host memory for the sizes of Qwen3-30B-A3B"


def main(
    arguments: Sequence[str] | None = None,
    found: Gpus | NoGpu | None = None,
    home: Home | None = None,
    steps: Sequence[Step] = STEPS,
) -> int:
    """Run the steps. 0 where there is no GPU to run them on, 1 if one has failed, 2 for a wrong argument."""
    parser = argparse.ArgumentParser(prog="nox -s gpu --", description=__doc__, allow_abbrev=False)
    parser.add_argument("--step", action="append", default=[], metavar="NAME", help="only this one; repeatable")
    parser.add_argument("--list", action="store_true", help="print the steps and start nothing")
    options = parser.parse_args(arguments)
    try:
        chosen = _chosen(steps, options.step)
    except InputError as error:
        print(f"nox -s gpu: {error}", file=sys.stderr)
        return 2
    if options.list:
        for step in chosen:
            print(f"{step.name:12} {step.title}")
        return 0
    gpu = first_usable(probe() if found is None else found)
    if isinstance(gpu, str):
        print(f"nox -s gpu needs {NEEDS}, and {_HOST_MEMORY}; here: {gpu}")
        return 0
    home = home or find_home()
    environment = fingerprint(home)
    print(f"{gpu.name}; records go to {checks_path(home.results, environment['host']).parent.parent}", flush=True)
    ended: Counter[str] = Counter()
    for number, step in enumerate(chosen, start=1):
        print(f"[{number}/{len(chosen)}] {step.name}: {step.title}", flush=True)
        record = _run(step, home, environment)
        with Store(checks_path(home.results, environment["host"]), CHECKS) as store:
            store.append(record)
        print(f"    {record.status}, {record.seconds:.0f} s  {record.findings or ''}", flush=True)
        ended[record.status.kind] += 1
    absent = f", {ended[_ABSENT]} could not run here" if ended[_ABSENT] else ""
    print(f"{ended[OK]} of {len(chosen)} steps passed{absent}")
    return 0 if ended[OK] + ended[_ABSENT] == len(chosen) else 1


def _chosen(steps: Sequence[Step], names: Sequence[str]) -> list[Step]:
    known = [step.name for step in steps]
    for name in names:
        if name not in known:
            raise InputError(f"--step {name}: unknown; {nearest(name, known)}")
    return [step for step in steps if not names or step.name in names]


def _run(step: Step, home: Home, environment: dict[str, Any]) -> CheckRecord:
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    findings: dict[str, Any] = {}
    try:
        findings = step.run(home)
        status = Status(OK)
    except NotHere as error:
        status = Status(_ABSENT, str(error))
    except (StepFailed, InputError, CudaError) as error:
        status = Status("crash", str(error))
    return CheckRecord(SCHEMA, step.name, status, findings, environment, started, time.perf_counter() - began)


if __name__ == "__main__":
    sys.exit(main())
