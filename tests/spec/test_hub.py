"""Protects the one line that says why a hub id cannot be loaded from the hub's library's account of its attempts."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
from huggingface_hub.utils import _http

from seqmoe.spec.hub import quiet_attempts

# The library waits longer and longer between its attempts.
_AT_ONCE = "import time; time.sleep = lambda seconds: None; from seqmoe.__main__ import main; main()"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "--prompt", "x", "--model", "some/model"), "model 'some/model': cannot be loaded"),
        (("replay", "--traces", "hf://datasets/some/traces"), "cannot be fetched from the hub"),
    ],
    ids=("model", "traces"),
)
def test_a_hub_that_does_not_answer_is_one_line(tmp_path, arguments, message):
    # Nothing listens on port 9 of this machine.
    surroundings = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
    surroundings["HF_HOME"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _AT_ONCE, *arguments], env=surroundings, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_nothing_else_is_kept_from_the_user(monkeypatch, caplog):
    logger, seen = _http.logger, []
    attempt = "'refused' thrown while requesting GET http://hub/file"
    monkeypatch.setattr(logger, "handle", lambda entry: logger.filter(entry) and seen.append(entry.getMessage()))
    with quiet_attempts():
        for words in (attempt, "Retrying in 1s [Retry 1/5].", "a token is out of date"):
            logger.warning(words)
    assert seen == ["a token is out of date"]
    logger.warning(attempt)
    assert seen.pop() == attempt
    caplog.set_level(logging.INFO, logger.name)
    with quiet_attempts():
        logger.warning(attempt)
    assert seen.pop() == attempt
