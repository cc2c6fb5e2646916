"""A sweep is interleaved, keeps cells of a worker together, and asks for exactly what the store does not have."""

from __future__ import annotations

import collections
import dataclasses
import itertools

from harness_samples import cell, record

from seqmoe.harness import link_check
from seqmoe.harness.plan import make_plan, order, pending
from seqmoe.harness.record import Status

NOW = {"python": "3.11", "packages": {"torch": "2"}, "git": {"revision": "a"}}
CELLS = [
    *(cell(system=name, residency=share) for share in (0.25, 0.5) for name in ("lru", "seqmoe")),
    cell(system="full", residency=1.0),
    cell(system="llama.cpp", residency=1.0),
    cell(system="vLLM", residency=1.0),
]


def group_of(point):
    return "ours" if point.system in ("lru", "seqmoe", "full") else point.system


def plan(history=None, repeats=3, obstacle=lambda point: None, resume=True, now=NOW):
    by_key = collections.defaultdict(list)
    for item in history or ():
        by_key[item.cell_key].append(item)
    return make_plan(CELLS, repeats, by_key, group_of, obstacle, lambda point: now, resume)


def failed(repeat, reason="r"):
    """A failure of the default cell, which is not told from its other repeats by prompts or tokens."""
    return dataclasses.replace(record(repeat=repeat), status=Status("crash", reason), environment=NOW)


def failure_of(point, status):
    return dataclasses.replace(record(), cell=point, cell_key=point.key, status=status, environment=NOW)


def test_every_round_holds_every_cell_once() -> None:
    runs = order(CELLS, 4, group_of)
    for repeat in range(4):
        part = runs[repeat * len(CELLS) : (repeat + 1) * len(CELLS)]
        assert {run.repeat for run in part} == {repeat}
        assert {run.cell for run in part} == set(CELLS)


def test_cells_of_a_group_stand_together_so_that_a_worker_serves_them_all() -> None:
    for repeat in range(4):
        names = [run.group for run in order(CELLS, 4, group_of) if run.repeat == repeat]
        changes = sum(a != b for a, b in itertools.pairwise(names))
        assert changes == len(set(names)) - 1


def test_rounds_start_with_another_group_and_another_cell() -> None:
    rounds = [[run for run in order(CELLS, 5, group_of) if run.repeat == r] for r in range(5)]
    assert [runs[0].group for runs in rounds] == ["ours", "llama.cpp", "vLLM", "ours", "llama.cpp"]
    first = [next(run.cell for run in runs if run.group == "ours") for runs in rounds]
    assert len(set(first)) == 5


def test_full_load_comes_first_in_the_first_round() -> None:
    ours = [run.cell.system for run in order(CELLS, 2, group_of) if run.group == "ours"]
    assert ours[0] == "full"


def test_what_the_store_has_is_not_asked_for_again() -> None:
    history = [record(system="lru", residency=0.25, repeat=r) for r in (0, 2)]
    runs = [(run.cell.system, run.repeat) for run in plan(history).runs if run.cell.residency == 0.25]
    assert sorted(runs) == [("lru", 1), ("seqmoe", 0), ("seqmoe", 1), ("seqmoe", 2)]
    assert plan(history).kept == 2
    assert len(plan(history, resume=False).runs) == 3 * len(CELLS)


def test_a_finished_store_leaves_nothing_to_do() -> None:
    history = [record(repeat=r, **{"system": c.system, "residency": c.residency}) for c in CELLS for r in range(3)]
    assert plan(history).runs == () and plan(history).kept == 3 * len(CELLS)


def test_more_repeats_later_add_only_what_is_new() -> None:
    assert pending([record(repeat=r) for r in range(5)], 8, NOW) == [5, 6, 7]


def test_a_failure_fills_its_cell_until_the_software_changes() -> None:
    history = [record(repeat=0), failed(repeat=1)]
    assert pending(history, 5, NOW) == []
    assert pending(history, 5, NOW | {"packages": {"torch": "3"}}) == [1, 2, 3, 4]
    assert pending([*history, record(repeat=1)], 5, NOW) == [2, 3, 4]
    assert pending(history, 5, NOW | {"load_average": 9}) == []


def test_what_was_killed_from_outside_is_tried_once_more() -> None:
    good, killed = record(repeat=0), failed(1, "killed by SIGKILL; it said nothing")
    assert pending([good, killed], 3, NOW) == [1, 2]
    assert pending([good, killed, killed], 3, NOW) == []
    assert pending([good, killed, record(repeat=1), killed], 3, NOW) == [2]
    own_fault = failed(1, "killed by SIGSEGV; it said nothing")
    quotes = failed(1, "ended with exit code 1 in the middle of a request; it said: killed by SIGKILL")
    assert pending([good, own_fault], 3, NOW) == pending([good, quotes], 3, NOW) == []


def test_an_obstacle_is_recorded_once_and_again_only_if_it_is_another_one() -> None:
    obstacle = Status("not_installed", "no environment", "install")

    def first(point):
        return obstacle if point.system == "vLLM" else None

    vllm = CELLS[-1]
    fresh = plan(obstacle=first)
    assert fresh.obstacles == ((vllm, obstacle),)
    assert all(run.cell != vllm for run in fresh.runs)
    history = [failure_of(vllm, obstacle)]
    assert plan(history, obstacle=first).obstacles == ()
    assert plan(history, obstacle=first, resume=False).obstacles == ((vllm, obstacle),)
    other = Status("unsupported", "no GPU")
    assert plan(history, obstacle=lambda p: other if p == vllm else None).obstacles == ((vllm, other),)


def test_what_has_been_installed_meanwhile_is_run() -> None:
    history = [failure_of(CELLS[-1], Status("not_installed", "no environment"))]
    runs = [run.repeat for run in plan(history).runs if run.cell == CELLS[-1]]
    assert runs == [0, 1, 2]


def made(digest, repeat=0, device="cpu", status=None):
    environment = NOW | {"device": device, "weights": {"model": digest, "predictor": None}}
    return dataclasses.replace(
        record(system="lru", residency=0.25, repeat=repeat), status=status or Status("ok"), environment=environment
    )


def repeats_of_lru(history, digest="new", device="cpu"):
    now = NOW | {"device": device, "weights": {"model": digest, "predictor": None}}
    runs = plan(history, now=now).runs
    return [run.repeat for run in runs if (run.cell.system, run.cell.residency) == ("lru", 0.25)]


def test_what_ran_on_other_weights_or_on_another_device_is_run_again() -> None:
    old = [made("old", repeat) for repeat in range(3)]
    assert repeats_of_lru(old, "old") == []
    assert repeats_of_lru(old, "new") == [0, 1, 2]
    assert repeats_of_lru(old, "old", "cuda") == [0, 1, 2]
    assert repeats_of_lru([*old, made("new", 0)], "new") == [1, 2]
    # back to the old weights: the newest record of the cell decides, as it does in the report
    assert repeats_of_lru([*old, made("new", 0)], "old") == [0, 1, 2]
    crashed = made("old", 0, status=Status("crash", "r"))
    assert repeats_of_lru([crashed], "old") == [] and repeats_of_lru([crashed], "new") == [0, 1, 2]


def test_a_record_that_does_not_tell_its_weights_counts_for_nothing() -> None:
    silent = [record(system="lru", residency=0.25, repeat=repeat) for repeat in range(3)]
    assert repeats_of_lru(silent) == [0, 1, 2]


def test_a_busy_machine_is_no_reason_to_leave_a_cell_alone() -> None:
    stats = {"overlap_ratio": 0.9, "overlap_ratio_achieved": 0.47}
    raw = record(repeat=1, stats=stats, environment=NOW, lane="emulated", hardware="card")
    busy = dataclasses.replace(raw, status=link_check.verdict(raw.cell, raw.status, raw.observations))
    assert busy.status.kind == "invalid"
    assert pending([busy], 3, NOW) == [0, 1, 2]
    other = dataclasses.replace(busy, status=Status("invalid", "answer differs from full load"))
    assert pending([other], 3, NOW) == []
