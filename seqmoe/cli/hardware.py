"""`seqmoe hardware`: the profile of the machine that it runs on."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from seqmoe.cli.base import JsonFlag, app, err, out, print_json
from seqmoe.spec.errors import InputError

hardware_app = typer.Typer(no_args_is_help=True, help="Hardware profiles.")
app.add_typer(hardware_app, name="hardware")


@hardware_app.callback()
def hardware() -> None:
    """Hardware profiles: what a machine computes and moves per second."""


@hardware_app.command("calibrate")
def hardware_calibrate(
    name: Annotated[str, typer.Option(help="The profile's name.")] = "host",
    file: Annotated[Path | None, typer.Option("--out", help="Write the profile there, NAME.toml.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure this host's memory, arithmetic and copies, idle and contended; takes some seconds on the CPU."""
    from seqmoe.harness.fingerprint import fingerprint
    from seqmoe.harness.host_calibration import host_profile, measure, profile_toml
    from seqmoe.spec.paths import find_home

    if file is not None and file.stem != name:
        raise InputError(f"--out {file}: a profile is called as its file; use --name {file.stem}, or {name}.toml")
    threads = int(os.environ.get("OMP_NUM_THREADS", "0") or 0) or len(os.sched_getaffinity(0))
    facts = fingerprint(find_home())
    with err.status("measuring"):
        found = measure()
    profile = host_profile(name, found, float(facts["memory_gib"]), threads)
    if file is not None:
        file.write_text(profile_toml(profile), encoding="utf-8")
    if as_json:
        print_json(asdict(profile) | {"gemv_efficiency": found.gemv_efficiency})
        return
    out.print(profile_toml(profile), highlight=False, markup=False)
    if facts["gpus"]:
        err.print("the GPU was not measured: this profile is of the CPU alone")
