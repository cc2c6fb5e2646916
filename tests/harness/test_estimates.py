"""What a dry run says of time, memory and disk, held to records and sums that can be done by hand."""

from __future__ import annotations

import dataclasses

import pytest
from harness_samples import FakeLauncher, cell, record

from seqmoe.harness.estimates import estimate_sweep, memory_bytes
from seqmoe.harness.record import to_json
from seqmoe.harness.runner import run_suite
from seqmoe.harness.store import Store
from seqmoe.harness.studies.estimates import estimate_study
from seqmoe.spec.paths import find_home

# tests' model: 2 layers of 8 experts of 10 bytes and 10 bytes of others, in bf16.
POOL, OTHERS = 160, 10


def took(seconds, **changes):
    return dataclasses.replace(record(**changes), seconds=seconds)


def test_a_cell_takes_what_it_took(home):
    own = [took(3.0), took(5.0, repeat=1)]
    found = estimate_sweep(home, "demo", "box", [cell()] * 4, own)
    one = found.cells[cell().key]
    assert (one.seconds, one.basis) == (4.0, "this cell's records")
    assert (found.seconds, found.unknown) == (16.0, 0)
    assert found.disk == pytest.approx(4 * (len(to_json(own[0])) + 1), abs=4)


def test_a_cell_without_records_takes_what_its_like_took_for_as_many_tokens(home):
    own = [took(2.0, residency=0.5), took(100.0, system="seqmoe")]
    longer = cell(decode_tokens=40)
    one = estimate_sweep(home, "demo", "box", [longer], own).cells[longer.key]
    assert (one.seconds, one.basis) == (20.0, "the same system's records")
    other = cell(system="lfu")
    assert estimate_sweep(home, "demo", "box", [other], own).cells[other.key].basis == "the same lane's records"


def test_records_of_another_machine_serve_where_there_are_none_of_this_one(home):
    with Store(home.results / "other" / "demo.jsonl") as store:
        store.append(took(7.0))
    one = estimate_sweep(home, "demo", "box", [cell()], []).cells[cell().key]
    assert (one.seconds, one.basis) == (7.0, "this cell's records elsewhere")
    assert estimate_sweep(home, "demo", "box", [cell()], [took(2.0)]).seconds == 2.0


def test_what_nothing_is_known_of_is_counted_and_never_called_quick(home):
    found = estimate_sweep(home, "demo", "box", [cell(lane="emulated", hardware="card")] * 3, [took(2.0)])
    assert (found.seconds, found.unknown) == (0.0, 3)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Our runtime holds float32, twice bf16: the pool of all experts, and the slots beside it.
        ({}, 2 * (OTHERS + POOL + 0.25 * POOL)),
        ({"system": "full", "residency": 1.0}, 2 * (OTHERS + POOL)),
        ({"system": "Rival", "residency": 1.0}, OTHERS + POOL),
        ({"lane": "simulated", "hardware": "card"}, 0),
        ({"lane": "emulated", "hardware": "card", "routing": "replay"}, 0),
        ({"weights": "random", "routing": "replay", "layers": 1}, OTHERS + (POOL + 0.25 * POOL) / 2),
    ],
)
def test_memory_is_the_sum_of_what_is_loaded(home, changes, expected):
    assert memory_bytes(home, cell(**changes)) == expected


def test_a_gguf_that_has_yet_to_be_written_takes_disk_once(home):
    file = home.baselines / "rival" / "baseline.toml"
    file.write_text(file.read_text().replace('model_format = "hf"', 'model_format = "gguf"'))
    runs = [cell(system="Rival", residency=1.0, dataset=name) for name in ("few", "few", "more")]
    before = estimate_sweep(home, "demo", "box", runs, []).disk
    (home.environments / "gguf").mkdir(parents=True)
    (home.environments / "gguf" / "checkpoint-0123-f32.gguf").write_bytes(b"")
    assert before - estimate_sweep(home, "demo", "box", runs, []).disk == 2 * (POOL + OTHERS)


def test_a_dry_run_has_an_estimate_and_writes_nothing(home):
    found = run_suite(home, "demo", dry_run=True, launcher=FakeLauncher(home))
    assert found.estimate is not None and found.written == 0
    assert found.estimate.unknown == len(found.to_run) == 10
    assert found.estimate.memory == 2 * (OTHERS + POOL + 0.5 * POOL)
    assert not found.path.exists()


def test_a_studys_disk_is_what_its_records_tell(tmp_path):
    home = find_home()
    suite = "fig8"
    (published,) = home.paper.parent.glob(f"published/*/{suite}.jsonl")
    cells = [line.split('"cell_key":"')[1][:12] for line in published.read_text().splitlines()]
    traces = tmp_path / "traces.bin"
    traces.write_bytes(bytes(1000))
    found = estimate_study(home, suite, {cells[0]: str(traces), "unheard of": None}, 2, tmp_path)
    assert (found.memory, found.unknown) == (1000, 1)
    assert found.disk > 1000
