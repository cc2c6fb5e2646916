"""Ctrl-C in the middle of a sweep: nothing finished is lost, nothing is run twice, no process is left."""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness_samples import eventually, processes_with

from seqmoe.harness.interruption import interruptible
from seqmoe.harness.store import read_records

HERE = Path(__file__).parent


def sweep(home, behaviour):
    command = [sys.executable, str(HERE / "sweep_script.py"), str(home.work), json.dumps(behaviour)]
    paths = os.pathsep.join([str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )


def stored(home):
    return [record for path in home.results.glob("*/demo.jsonl") for record in read_records(path)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("behaviour", [{"pause": 0.25}, {"pause": 0.25, "seqmoe": "stubborn"}])
def test_an_interrupted_sweep_goes_on_where_it_was(home, served, number, behaviour) -> None:
    first = sweep(home, behaviour)
    stubborn = "seqmoe" in behaviour
    assert eventually(lambda: len(served()) >= (4 if stubborn else 6), 60)
    first.send_signal(number)
    _, words = first.communicate(timeout=30)
    assert first.returncode == 130 and "the same command goes on" in words
    assert processes_with(str(home.work)) == []
    kept = stored(home)
    assert 0 < len(kept) < 20 and all(record.status.ok for record in kept)

    second = sweep(home, {})
    assert second.wait(timeout=60) == 0
    everything = stored(home)
    assert everything[: len(kept)] == kept
    times = collections.Counter((record.cell_key, record.repeat) for record in everything)
    assert len(times) == 20 and set(times.values()) == {1}
    # the run that was cut off is the only one that a worker saw twice
    asked = collections.Counter(json.dumps(line["cell"], sort_keys=True) for line in served())
    assert sum(asked.values()) == 21
    assert processes_with(str(home.work)) == []


def test_a_second_interrupt_does_not_stop_the_cleaning_up(home, served) -> None:
    process = sweep(home, {"full": "stubborn"})
    assert eventually(lambda: len(served()) == 1, 60)
    assert eventually(lambda: len(processes_with(str(home.work), seconds=0)) == 3)
    process.send_signal(signal.SIGINT)
    for _ in range(10):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert processes_with(str(home.work)) == []


def test_a_sweep_that_is_killed_outright_leaves_a_whole_store_and_no_lock(home, served) -> None:
    process = sweep(home, {"pause": 0.2})
    assert eventually(lambda: len(served()) >= 4, 60)
    process.kill()
    process.communicate(timeout=30)
    kept = stored(home)
    assert eventually(lambda: processes_with(str(home.work), seconds=0) == [])
    assert sweep(home, {}).wait(timeout=60) == 0
    assert stored(home)[: len(kept)] == kept and len(stored(home)) == 20


def test_two_sweeps_at_a_time_are_refused(home, served) -> None:
    first = sweep(home, {"full": "hang"})
    assert eventually(lambda: len(served()) == 1, 60)
    _, words = (second := sweep(home, {})).communicate(timeout=60)
    assert second.returncode == 1 and "another sweep is writing" in words
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=30)


def test_handlers_are_given_back_and_only_the_first_signal_is_raised() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interruptible():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before
