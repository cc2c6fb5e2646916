"""What the tests of the wrapped systems share: the repository on the path, and a request to start from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


@pytest.fixture
def request_table():
    """A valid request; tests replace what they are about."""
    return {
        "protocol": 1,
        "cell": {"system": "fake", "residency": 1.0, "batch": 1},
        "model_path": "model",
        "model_format": "hf",
        "prompts": [[1, 2, 3], [4, 5]],
        "decode_tokens": 4,
        "device": "cpu",
        "threads": 1,
        "warmup": True,
        "options": {},
    }


@pytest.fixture
def run_worker():
    """Feed lines to a worker program and return its events; everything on its stdout must be an event."""

    def run(program, *lines, python=sys.executable, seconds=120):
        text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
        ended = subprocess.run(
            [str(python), str(program)], input=text, capture_output=True, text=True, timeout=seconds, cwd="/"
        )
        assert ended.returncode == 0, ended.stderr
        return [json.loads(line) for line in ended.stdout.splitlines()], ended.stderr

    return run
