"""Ctrl-C in the middle of a study: finished cells are kept, no process is left, what had begun is gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness_samples import eventually, processes_with
from study_samples import computed, write_study

from seqmoe.harness.store import read_records
from seqmoe.harness.studies.record import STUDIES

HERE = Path(__file__).parent


def study(home, behaviour):
    command = [sys.executable, str(HERE / "study_script.py"), str(home.work), json.dumps(behaviour)]
    paths = os.pathsep.join([str(HERE), str(HERE.parents[2]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )


def stored(home):
    return [record for path in home.results.glob("*/small.jsonl") for record in read_records(path, STUDIES)]


def left_to_go_on_with(home):
    return sorted(path.parent.parent.name for path in home.results.glob("*/.work/*/*/checkpoint"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("behaviour", ["hang", "stubborn"])
def test_an_interrupted_study_goes_on_where_it_was(home, number, behaviour) -> None:
    write_study(home)
    first = study(home, {"base": behaviour})
    assert eventually(lambda: any(request["cell"]["variant"] == "base" for request in computed(home)), 60)
    assert eventually(lambda: len(stored(home)) >= 4, 60)
    assert eventually(lambda: bool(left_to_go_on_with(home)), 60)
    first.send_signal(number)
    _, words = first.communicate(timeout=30)
    assert first.returncode == 130 and "the same command goes on" in words
    assert processes_with(str(home.work)) == []
    kept = stored(home)
    assert all(record.status.ok for record in kept)
    (interrupted,) = (request["cell"] for request in computed(home) if request["cell"]["variant"] == "base")
    assert len(left_to_go_on_with(home)) >= 1

    second = study(home, {})
    assert second.wait(timeout=60) == 0
    everything = stored(home)
    assert everything[: len(kept)] == kept and len(everything) == 6
    (resumed,) = (record for record in everything if record.cell.variant == interrupted["variant"])
    assert resumed.observations["training"]["resumed"] is True
    assert left_to_go_on_with(home) == [] and processes_with(str(home.work)) == []


def test_a_study_that_is_killed_outright_leaves_a_whole_store_and_no_lock(home) -> None:
    write_study(home)
    process = study(home, {"pause": 0.2})
    assert eventually(lambda: len(stored(home)) >= 1, 60)
    process.kill()
    process.communicate(timeout=30)
    kept = stored(home)
    assert study(home, {}).wait(timeout=60) == 0
    assert stored(home)[: len(kept)] == kept and len(stored(home)) == 6


def test_what_a_finished_cell_worked_with_is_removed_if_the_end_came_between_its_record_and_that(home) -> None:
    write_study(home)
    assert study(home, {}).wait(timeout=60) == 0
    (path,) = home.results.glob("*/small.jsonl")
    left = path.parent / ".work" / stored(home)[0].cell_key / "digest" / "checkpoint"
    left.parent.mkdir(parents=True)
    left.touch()
    assert study(home, {}).wait(timeout=60) == 0
    assert left_to_go_on_with(home) == [] and len(stored(home)) == 6
