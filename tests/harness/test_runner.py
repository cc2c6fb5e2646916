"""A sweep fills every cell once, whatever its workers do, and a second one does nothing."""

from __future__ import annotations

import collections

import pytest
from harness_samples import SUITE, FakeLauncher, processes_with, write_home, write_predictor

from seqmoe.harness.metrics import Missing, decode_tok_s, tokens_sha256
from seqmoe.harness.record import KINDS, OK, Status
from seqmoe.harness.runner import run_suite
from seqmoe.harness.same_answer import FULL, compare, workload
from seqmoe.harness.store import read_records
from seqmoe.spec.errors import InputError


def statuses(result):
    found = collections.defaultdict(list)
    for record in result.records:
        found[record.cell.system, record.cell.residency].append(record.status.kind)
    return dict(found)


def answers(records):
    """Agreement with full load of the same workload, by cell key and repeat."""
    full = {workload(record.cell): record for record in records if record.cell.system == FULL}
    return {(r.cell_key, r.repeat): compare(r, full.get(workload(r.cell))) for r in records}


class Recorder:
    """A progress report that remembers what it was told."""

    def __init__(self):
        self.told = []

    def start(self, runs):
        self.told.append(("start", len(runs)))

    def begin(self, run):
        self.told.append(("begin", run.cell.system))

    def end(self, run, record):
        self.told.append(("end", record.status.kind))

    def skip(self, run):
        self.told.append(("skip", run.cell.system))

    def stop(self):
        self.told.append(("stop",))


def test_every_cell_is_repeated_and_stored_with_all_that_metrics_need(home, served) -> None:
    result = run_suite(home, "demo", launcher=FakeLauncher(home))
    assert len(result.cells) == 5 and result.written == 10
    assert set(map(tuple, statuses(result).values())) == {("ok", "ok")}
    assert result.path == home.results / result.host / "demo.jsonl"
    assert tuple(read_records(result.path)) == result.records
    for record in result.records:
        assert decode_tok_s(record) > 0 and record.environment["host"] == result.host
        assert record.environment["threads"] == 1 and record.seconds > 0
    assert len({tokens_sha256(record) for record in result.records}) == 1
    assert all(answer.same for answer in answers(result.records).values())
    assert len({line["pid"] for line in served()}) == 1
    assert processes_with(str(home.work)) == []


def test_a_record_names_its_device_and_its_weights(home, served) -> None:
    write_predictor(home.work / "checkpoint", b"predictor")
    result = run_suite(home, "demo", launcher=FakeLauncher(home))
    assert {record.environment["device"] for record in result.records} == {"cpu"}
    weights = {record.cell.system: record.environment["weights"] for record in result.records}
    assert len({found["model"] for found in weights.values()}) == 1
    assert weights["seqmoe"]["predictor"] and weights["lru"]["predictor"] is None


def test_a_retrained_model_is_run_again_and_held_to_its_own_full_load(home, served) -> None:
    run_suite(home, "demo", launcher=FakeLauncher(home))
    (home.work / "checkpoint" / "model.safetensors").write_bytes(b"retrained")
    says_other_words = dict.fromkeys(("full", "lru", "seqmoe"), "wrong")
    again = run_suite(home, "demo", launcher=FakeLauncher(home, says_other_words))
    assert again.written == 10
    assert set(map(tuple, statuses(again).values())) == {("ok", "ok")}
    assert run_suite(home, "demo", launcher=FakeLauncher(home, says_other_words)).written == 0


def test_a_new_predictor_runs_only_the_system_that_uses_it_again(home, served) -> None:
    write_predictor(home.work / "checkpoint", b"predictor")
    run_suite(home, "demo", launcher=FakeLauncher(home))
    write_predictor(home.work / "checkpoint", b"fitted anew")
    again = run_suite(home, "demo", launcher=FakeLauncher(home))
    assert again.written == 4 and {line["cell"]["system"] for line in served()[10:]} == {"seqmoe"}


def test_a_busy_machine_costs_its_repeats_and_the_next_sweep_tries_them_again(tmp_path) -> None:
    home = write_home(tmp_path / "home", SUITE.replace('lane = "measured"', 'lane = "emulated"\nhardware = "card"'))
    busy = FakeLauncher(home, {"lru": "busy"})
    found = statuses(run_suite(home, "demo", launcher=busy))
    assert found["lru", 0.25] == ["invalid", "invalid"] and found["seqmoe", 0.25] == ["ok", "ok"]
    assert run_suite(home, "demo", launcher=busy).written == 4
    idle = run_suite(home, "demo", launcher=FakeLauncher(home))
    assert idle.written == 4 and statuses(idle)["lru", 0.25] == ["ok", "ok"]


def test_a_second_sweep_has_nothing_to_do_and_more_repeats_add_only_theirs(home, served) -> None:
    run_suite(home, "demo", launcher=FakeLauncher(home))
    again = run_suite(home, "demo", launcher=FakeLauncher(home))
    assert again.written == 0 and len(again.records) == 10 and len(served()) == 10
    more = run_suite(home, "demo", launcher=FakeLauncher(home), repeats=3)
    assert more.written == 5 and {r.repeat for r in more.records} == {0, 1, 2}
    fresh = run_suite(home, "demo", launcher=FakeLauncher(home), resume=False)
    assert fresh.written == 10 and len(fresh.records) == 15


@pytest.mark.parametrize(
    ("behaviour", "kind", "words"),
    [
        ("crash", "crash", "the last words of .../place.py"),
        ("killed", "crash", "SIGKILL"),
        ("memory", "oom", "host: "),
        ("device_memory", "oom", "device: "),
        ("pinned_memory", "oom", "host_pinned: "),
        ("garbage", "crash", "Loading weights"),
        ("protocol", "crash", "unknown event 'tokens'"),
        ("hang", "hang", "after 3 s"),
        ("stubborn", "hang", "after 3 s"),
        ("short", "invalid", "prompt 0 emitted 3 tokens where 4 were asked for"),
        ("wrong", "invalid", "answer differs from full load at token 2 of prompt 0"),
        ("unsupported", "unsupported", "said unsupported"),
        ("not_installed", "not_installed", "said not_installed"),
        ("oom", "oom", "said oom"),
        ("invalid", "invalid", "said invalid"),
    ],
)
def test_a_cell_that_fails_fills_itself_and_leaves_the_rest(home, behaviour, kind, words) -> None:
    progress = Recorder()
    launcher = FakeLauncher(home, {"lru": behaviour})
    # the first answers take an interpreter's start, which is all that the short time-out has to allow for
    result = run_suite(home, "demo", launcher=launcher, timeout=3 if kind == "hang" else 60, progress=progress)
    found = statuses(result)
    assert found["lru", 0.25] == [kind] and found["lru", 0.5] == [kind]
    assert found["seqmoe", 0.25] == found["seqmoe", 0.5] == found["full", 1.0] == ["ok", "ok"]
    failure = next(r for r in result.records if r.cell.system == "lru")
    assert words in failure.status.reason and failure.repeat == 0
    assert str(home.work) not in failure.status.reason and "/home" not in failure.status.reason
    assert isinstance(decode_tok_s(failure), Missing)
    assert progress.told.count(("skip", "lru")) == 2 and progress.told[-1] == ("stop",)
    again = run_suite(home, "demo", launcher=FakeLauncher(home))
    assert again.written == (4 if kind == "not_installed" or behaviour == "killed" else 0)
    untried = kind not in ("unsupported", "not_installed") and behaviour != "killed"
    assert [cell.system for cell in again.failed] == (["lru", "lru"] if untried else [])
    assert processes_with(str(home.work)) == []


def test_every_status_has_a_worker_that_ends_so() -> None:
    (mark,) = test_a_cell_that_fails_fills_itself_and_leaves_the_rest.pytestmark
    assert {OK, *(kind for _, kind, _ in mark.args[1])} == set(KINDS)
    places = {words.partition(":")[0] for _, kind, words in mark.args[1] if kind == "oom" and ":" in words}
    assert places == {"device", "host_pinned", "host"}


def test_wrapped_systems_may_answer_differently_and_hide_their_tokens(tmp_path) -> None:
    suite = SUITE.replace('"lru", "seqmoe", "full"', '"full", "Rival"').replace("[0.25, 0.5]", "[1.0]")
    for name, behaviour in (("a", "wrong"), ("b", "hidden")):
        home = write_home(tmp_path / name, suite)
        result = run_suite(home, "demo", launcher=FakeLauncher(home, {"Rival": behaviour}))
        assert statuses(result) == {("full", 1.0): ["ok", "ok"], ("Rival", 1.0): ["ok", "ok"]}
        theirs = [answer for (key, _), answer in answers(result.records).items() if key == result.cells[1].key]
        if behaviour == "wrong":
            assert {a.identical for a in theirs} == {0.0} and {a.common_prefix for a in theirs} == {2.0}
        else:
            assert all(isinstance(a, Missing) for a in theirs)


def test_what_cannot_be_started_is_recorded_once_and_run_when_it_can(home, served) -> None:
    launcher = FakeLauncher(home)
    launcher.obstacles = {"lru": Status("not_installed", "no environment", "install it")}
    assert statuses(run_suite(home, "demo", launcher=launcher))["lru", 0.25] == ["not_installed"]
    assert {line["cell"]["system"] for line in served()} == {"full", "seqmoe"}
    assert run_suite(home, "demo", launcher=launcher).written == 0
    result = run_suite(home, "demo", launcher=FakeLauncher(home))
    assert statuses(result)["lru", 0.25] == ["ok", "ok"]


def test_the_launcher_of_a_real_home_answers_for_baselines_and_nothing_is_started(tmp_path) -> None:
    suite = SUITE.replace('"lru", "seqmoe", "full"', '"Rival"').replace("[0.25, 0.5]", "[0.25, 1.0]")
    home = write_home(tmp_path / "home", suite)
    found = statuses(run_suite(home, "demo"))
    assert found == {("Rival", 0.25): ["unsupported"], ("Rival", 1.0): ["not_installed"]}


def test_a_worker_that_cannot_be_started_is_not_installed(home) -> None:
    launcher = FakeLauncher(home)
    launcher.command = lambda cell: ["/nowhere/bin/python"]
    result = run_suite(home, "demo", only=["full"], launcher=launcher)
    assert statuses(result) == {("full", 1.0): ["not_installed"]}
    assert "/nowhere/bin" not in result.records[0].status.reason


def test_groups_have_processes_of_their_own_and_a_failed_one_is_replaced(home, served) -> None:
    run_suite(home, "demo", launcher=FakeLauncher(home, {"lru": "oom"}, shared=False), repeats=3)
    pids = collections.defaultdict(set)
    for line in served():
        pids[line["cell"]["system"]].add(line["pid"])
    assert not pids["lru"] & pids["seqmoe"] and not pids["seqmoe"] & pids["full"]
    assert len(pids["lru"]) == 2


def test_a_dry_run_plans_and_touches_nothing(home, served) -> None:
    result = run_suite(home, "demo", launcher=FakeLauncher(home), dry_run=True)
    assert len(result.plan.runs) == 10 and result.written == 0 and result.records == ()
    assert served() == [] and not home.results.exists()


def test_only_narrows_the_sweep(home, served) -> None:
    result = run_suite(home, "demo", only=["full"], launcher=FakeLauncher(home))
    assert {line["cell"]["system"] for line in served()} == {"full"} and len(result.cells) == 1


def test_a_seed_makes_other_cells_with_other_prompts(home, served) -> None:
    run_suite(home, "demo", only=["full"], launcher=FakeLauncher(home))
    result = run_suite(home, "demo", only=["full"], seed=3, launcher=FakeLauncher(home))
    assert result.written == 2
    assert served()[0]["request"]["prompts"] != served()[-1]["request"]["prompts"]


def test_a_killed_cell_is_tried_once_more_and_then_left_alone(home) -> None:
    launcher = FakeLauncher(home, {"lru": "killed"})
    assert [run_suite(home, "demo", launcher=launcher).written for _ in range(3)] == [8, 2, 0]
    planned = run_suite(home, "demo", launcher=launcher, dry_run=True)
    assert planned.plan.runs == () and len(planned.failed) == 2
    fresh = run_suite(home, "demo", launcher=FakeLauncher(home), resume=False, only=[planned.failed[0].key])
    assert fresh.written == 2 and fresh.failed == ()


@pytest.mark.parametrize(
    "change",
    [
        {"profile": "quik"},
        {"repeats": 0},
        {"repeats": 10**11},
        {"threads": 0},
        {"threads": 100_000},
        {"only": ["nothing"]},
        {"suite": "dmo"},
    ],
)
def test_wrong_input_is_refused_before_anything_is_written(home, change) -> None:
    with pytest.raises(InputError):
        run_suite(home, **({"suite": "demo", "launcher": FakeLauncher(home)} | change))
    assert not home.results.exists()
