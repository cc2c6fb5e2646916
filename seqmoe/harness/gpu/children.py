"""Checks of the CUDA runtime as processes of their own, so that a crash of one is no crash of the others."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from seqmoe.harness.observing import without_paths

# A step of `nox -s gpu` stays below nine minutes.
SECONDS = 530
_SANITIZER = "compute-sanitizer"
_TAIL = 1500


class StepFailed(Exception):
    """A step that did not end as it should; the message says why."""


class NotHere(Exception):
    """A step that lacks something on this machine."""


def check(name: str, before: Sequence[str] = ()) -> dict[str, Any]:
    """Run ``python -m seqmoe.runtime.cuda.checks NAME``, perhaps below another program; its findings."""
    command = [*before, sys.executable, "-m", "seqmoe.runtime.cuda.checks", name]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise StepFailed(f"did not end within {SECONDS} s") from None
    if ended.returncode != 0:
        last = without_paths((ended.stderr or ended.stdout)[-_TAIL:].strip())
        raise StepFailed(f"exit code {ended.returncode}: {last}")
    findings = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if not findings:
        raise StepFailed("ended without findings")
    found: dict[str, Any] = json.loads(findings[-1])
    return found


def sanitized(tool: str) -> dict[str, Any]:
    """The kernels' check under NVIDIA's compute-sanitizer: memcheck or racecheck. `NotHere` without it."""
    program = shutil.which(_SANITIZER)
    if program is None:
        raise NotHere(f"{_SANITIZER} is not on the PATH; it comes with the CUDA toolkit")
    check("kernels", [program, "--tool", tool, "--error-exitcode", "77", "--target-processes", "all"])
    return {"tool": tool, "errors": 0}
