"""What of a baseline answers where its system cannot run: its kernel, or what the quick profile could install of it."""

from __future__ import annotations

import json
import shlex
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


def run_trial(baseline: Baseline, home: Home) -> str:
    """Run the declared trial; one line of what was installed and the last line that it said, whatever its exit code.

    `InstallError` where its program is not there or does not end.
    """
    if baseline.trial is None:
        raise ValueError(f"baseline {baseline.name!r} declares no trial")
    name, *arguments = baseline.trial.command
    program = environment_python(baseline, home).with_name(name)
    try:
        ended = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=_SECONDS,
                               errors="replace")  # fmt: skip
    except FileNotFoundError:
        raise InstallError(baseline.name, f"the installed package has no program {name!r}", baseline.needs) from None
    except subprocess.TimeoutExpired:
        raise InstallError(baseline.name, f"{name} did not end within {_SECONDS:g} s", baseline.needs) from None
    lines = (ended.stdout + ended.stderr).strip().splitlines()
    said = lines[-1] if lines else "nothing"
    return f"installed is {baseline.trial.about}; `{shlex.join(baseline.trial.command)}` says: {said}"
