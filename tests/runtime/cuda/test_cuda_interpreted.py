"""Runs the CUDA runtime's decode step on a CPU, kernels interpreted, in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = sorted(path.name for path in (HERE / "interpreted").glob("interpret_*.py"))
PATHS = (HERE.parents[1], HERE.parent, HERE.parent / "random_model")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="not checked: Triton is not installed")
@pytest.mark.parametrize("file", FILES)
def test_interpreted(file, tmp_path) -> None:
    path = os.pathsep.join([*map(str, PATHS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "1"}
    arguments = ["-q", "-p", "no:cacheprovider", "-o", "python_files=interpret_*.py", "--tb=short", "--durations=8"]
    command = [sys.executable, "-m", "pytest", *arguments, str(HERE / "interpreted" / file)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1500, check=False)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    assert " passed" in ended.stdout and "skipped" not in ended.stdout
