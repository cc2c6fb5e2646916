"""A baseline's kernel: the part that runs where its system cannot, started in its environment, never as the system."""

from __future__ import annotations

import json
import subprocess

from seqmoe.harness.environments import InstallError, environment_python
from seqmoe.spec.baseline import Baseline
from seqmoe.spec.paths import Home

_SECONDS = 300.0


def run_kernel(baseline: Baseline, home: Home, threads: int = 1) -> str:
    """Run the declared kernel; one line of what it is and what it measured.

    `InstallError` where it ends with an error, does not end, or prints no JSON object.
    """
    if baseline.kernel is None:
        raise ValueError(f"baseline {baseline.name!r} declares no kernel")
    program = baseline.folder / baseline.kernel.program
    command = [str(environment_python(baseline, home)), str(program), str(threads)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, errors="replace")
        measured = json.loads(ended.stdout.splitlines()[-1]) if ended.returncode == 0 else None
    except subprocess.TimeoutExpired:
        raise InstallError(baseline.name, f"{program} did not end within {_SECONDS:g} s", baseline.needs) from None
    except (ValueError, IndexError):
        measured = None
    if not isinstance(measured, dict):
        said = " | ".join(ended.stderr.strip().splitlines()[-3:]) or "nothing"
        raise InstallError(baseline.name, f"{program} ended with code {ended.returncode}: {said}", baseline.needs)
    return f"{baseline.kernel.about}: " + ", ".join(f"{name} {value}" for name, value in measured.items())
