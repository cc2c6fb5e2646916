"""Runs what needs Triton in processes of their own: kernels are interpreted in one, and compiled in another.

Whether kernels are interpreted is decided when they are defined, and compiling fails where they are.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PATHS = (HERE, HERE.parents[1] / "core")
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="kernels are not checked: Triton is not installed"
)


def run(arguments, tmp_path, **environment):
    path = os.pathsep.join([*map(str, PATHS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(tmp_path), **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=900)


@needs_triton
def test_interpreted(tmp_path):
    arguments = ["-q", "-p", "no:cacheprovider", "-o", "python_files=interpret_*.py", "--tb=short", "--durations=8"]
    ended = run(["-m", "pytest", *arguments, str(HERE / "interpreted")], tmp_path, TRITON_INTERPRET="1")
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    assert " passed" in ended.stdout and "skipped" not in ended.stdout


def test_seqmoe_imports_without_triton_and_a_kernel_says_what_it_needs(tmp_path):
    program = """
import sys
sys.modules["triton"] = None
import seqmoe, seqmoe.runtime.kernels, seqmoe.runtime.kernels.library
from seqmoe.spec.errors import InputError
try:
    import seqmoe.runtime.kernels.plan
except InputError as error:
    print(error)
"""
    ended = run(["-c", program], tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "pip install 'seqmoe[cuda]'" in ended.stdout
