"""Protects replay studies: what a suite expands to, what a cell computes and from which predictor, and its record."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from study_samples import evaluation, write_traces

from seqmoe.harness.record import Status
from seqmoe.harness.studies import replay
from seqmoe.harness.studies.kinds import KINDS, find_study
from seqmoe.harness.studies.predictors import outdated
from seqmoe.harness.studies.record import PredictionRecord, ReplayRecord, to_line
from seqmoe.harness.studies.replay_job import compute
from seqmoe.harness.studies.runner import run_study
from seqmoe.predictor.making import make_predictor
from seqmoe.simulate.policies import policy_of
from seqmoe.simulate.rows import ReplayRow
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import find_home
from seqmoe.spec.prediction import PredictionCell
from seqmoe.spec.replay import ReplayCell, experts_per_layer
from seqmoe.traces.source import digest, load_traces
from seqmoe.traces.split import split

SUITE = """
schema = 1
name = "small"
title = "Small"
figure = "7"
study = "replay"
[[profile.quick.block]]
panel = "paper"
traces = "{traces}"
policies = ["lru", "seqmoe", "learned"]
residencies = [0.3, 0.5]
links = ["rtx4090", "unlimited"]
predictor = "previous"
warm_up = 4
[[profile.quick.block]]
panel = "batches"
traces = "{traces}"
policies = ["lru", "belady"]
residencies = [0.6]
batches = [2, 4]
"""


def cell(**changes):
    """A cell on small traces."""
    plain = ReplayCell("fig7", "paper", "t", ("lru", "seqmoe"), (0.4,), ("0.9", "unlimited"), "previous", warm_up=4)
    return replace(plain, **changes)


@pytest.fixture
def request_of(tmp_path):
    traces = write_traces(tmp_path / "t", sequences=16)

    def request(one):
        keep = tmp_path / "host" / "predictors" / f"{one.key}.safetensors"
        folders = {"source": str(traces), "work": str(tmp_path / "work"), "keep": str(keep)}
        return {"study": "replay", "cell": json.loads(json.dumps(asdict(one))), **folders}

    return request


@pytest.mark.parametrize("name", ["fig3", "fig7"])
@pytest.mark.parametrize("profile", ["quick", "full"])
def test_the_declared_suites_name_what_there_is(name, profile) -> None:
    home = find_home()
    study = find_study(home, name)
    cells = study.suite.cells(profile, traces="mine.npz")
    assert study.suite.figure == name[-1] and cells and len({one.key for one in cells}) == len(cells)
    for one in cells:
        assert one.traces == "mine.npz" and one.warm_up == 16 and one.predictor == "mamba2"
        needs = [policy_of(policy) for policy in one.policies]
        assert bool(one.links) == any(policy.prefetch for policy in needs)
        assert all(experts_per_layer(home, link) > 0 for link in one.links)


def test_links_follow_from_the_hardware() -> None:
    home = find_home()
    assert experts_per_layer(home, "rtx4090") == pytest.approx(0.90, abs=0.01)
    assert experts_per_layer(home, "unlimited") == float("inf") and experts_per_layer(home, "1.39") == 1.39
    with pytest.raises(InputError, match="rtx4090"):
        experts_per_layer(home, "rtx4091")


def test_a_cell_replays_the_test_part_and_keeps_the_predictor_that_it_made(request_of, tmp_path) -> None:
    told = []
    found = compute(request_of(cell()), told.append)
    assert found["predictor"]["kind"] == "previous" and found["predictor"]["from"] == "replay"
    assert (tmp_path / "host" / "predictors" / found["predictor"]["file"]).is_file()
    rows = [ReplayRow.from_dict(values) for values in json.loads(json.dumps(found["rows"], allow_nan=False))]
    assert [(row.policy, row.link) for row in rows] == [("lru", 0.0), ("seqmoe", 0.9), ("seqmoe", None)]
    _, test = split(load_traces(tmp_path / "t"), 0.1)
    assert {row.tokens for row in rows} == {sum(len(r.experts) - 4 for r in test.requests)}
    assert found["links"] == {"0.9": 0.9, "unlimited": None} and found["traces"]["test"] == len(test.requests)
    assert any("replaying" in replay.progress(event) for event in told)
    assert "lru" in replay.describe(found)
    again = compute(request_of(cell()), told.append)
    assert again["rows"] == found["rows"]


def test_a_predictor_of_figure_8_on_the_same_traces_is_taken(request_of, tmp_path) -> None:
    traces = load_traces(tmp_path / "t")
    trained = PredictionCell("fig8", "predictors", "previous", "t", minutes=0.0)
    path = tmp_path / "host" / "predictors" / f"{trained.key}.safetensors"
    path.parent.mkdir(parents=True)
    predictor, record = make_predictor("previous", split(traces, 0.1)[0])
    predictor.save(path, record)
    observed = {"evaluation": evaluation().as_dict(), "training": {}, "cost": {}, "traces": {"digest": digest(traces)}}
    for about in (observed | {"traces": {"digest": "0" * 12}}, observed):
        line = PredictionRecord(1, "prediction", trained, trained.key, Status("ok"), about, {}, "", 1.0)
        with (tmp_path / "host" / "fig8.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(to_line(line) + "\n")
    found = compute(request_of(cell()), lambda event: None)
    assert (found["predictor"]["from"], found["predictor"]["file"]) == ("fig8", path.name)
    assert sorted(path.parent.iterdir()) == [path]


def test_a_cell_runs_again_when_there_is_a_better_predictor(home) -> None:
    location = write_traces(home.work / "routing", sequences=16)
    text = SUITE.format(traces=location).replace("rtx4090", "0.9").replace("[2, 4]", "[2]")
    (home.suites / "small.toml").write_text(text, encoding="utf-8")
    study = find_study(home, "small")
    first = run_study(home, study)
    assert first.written == 2
    before = first.records[0].observations["predictor"]
    assert before["from"] == "replay" and len(before["digest"]) == 12
    assert run_study(home, study).written == 0

    # Figure 8 leaves one for the same traces: only the cell that forecasts is computed again, once.
    content, folder = digest(load_traces(location)), first.path.parent / "predictors"
    trained = PredictionCell("fig8", "predictors", "previous", "routing")
    (folder / f"{trained.key}.safetensors").write_bytes((folder / before["file"]).read_bytes())
    observed = {"evaluation": evaluation().as_dict(), "training": {}, "cost": {}, "traces": {"digest": content}}
    line = PredictionRecord(1, "prediction", trained, trained.key, Status("ok"), observed, {}, "", 1.0)
    first.path.with_name("fig8.jsonl").write_text(to_line(line) + "\n")
    assert run_study(home, study).written == 0  # the same content under another name
    predictor, record = make_predictor("previous", split(load_traces(location), 0.1)[0])
    predictor.save(folder / f"{trained.key}.safetensors", record | {"minutes": 1.0})
    waiting = run_study(home, study, dry_run=True)
    assert [one.panel for one in waiting.to_run] == ["paper"] and waiting.failed == ()
    again = run_study(home, study)
    assert again.written == 1 and again.records[0].observations["predictor"]["from"] == "fig8"
    assert run_study(home, study).written == 0


def test_records_of_earlier_versions_are_known_by_the_predictors_name(request_of, tmp_path) -> None:
    folder = tmp_path / "host" / "predictors"
    observed = compute(request_of(cell()), lambda event: None) | {
        "traces": {"digest": digest(load_traces(tmp_path / "t"))}
    }
    old = {name: value for name, value in observed["predictor"].items() if name != "digest"}
    for about, expected in ((observed["predictor"], False), (old, False), (old | {"minutes": 3.0}, True)):
        found = ReplayRecord(
            1, "replay", cell(), cell().key, Status("ok"), observed | {"predictor": about}, {}, "", 1.0
        )
        assert outdated(found, str(tmp_path / "t"), folder) == expected
    assert not outdated(replace(found, cell=cell(predictor=""), cell_key=cell(predictor="").key), "absent", folder)


def test_a_predictor_that_is_there_saves_its_minutes(request_of, tmp_path) -> None:
    asked, kind, location = cell(minutes=5.0), KINDS["replay"], str(tmp_path / "t")
    content = digest(load_traces(location)) if request_of(asked) else ""
    folder = tmp_path / "host" / "predictors"
    assert not kind.ready(asked, content, location, folder) and kind.ready(
        cell(predictor=""), content, location, folder
    )
    compute(request_of(asked), lambda event: None)
    assert kind.ready(asked, content, location, folder)
    assert (kind.seconds(asked, False), kind.seconds(asked, True)) == (360.0, 60.0)


def test_what_cannot_be_computed_says_why(request_of) -> None:
    with pytest.raises(InputError, match="works on forecasts"):
        compute(request_of(cell(predictor="")), lambda event: None)
    with pytest.raises(InputError, match="did you mean 'seqmoe'"):
        compute(request_of(cell(policies=("seqmo",))), lambda event: None)


def test_a_study_runs_in_child_processes_and_resumes(home) -> None:
    traces = write_traces(home.work / "routing", sequences=16)
    (home.suites / "small.toml").write_text(SUITE.format(traces=traces), encoding="utf-8")
    for hardware in (find_home().suites / "hardware").glob("*.toml"):
        (home.suites / "hardware").mkdir(exist_ok=True)
        (home.suites / "hardware" / hardware.name).write_text(hardware.read_text())
    study = find_study(home, "small")
    result = run_study(home, study)
    assert [one.panel for one in result.cells] == ["paper", "batches", "batches"]
    assert [one.status.kind for one in result.records] == ["ok"] * 3, [one.status for one in result.records]
    assert all(isinstance(one, ReplayRecord) for one in result.records)
    again = run_study(home, study)
    assert again.written == 0 and again.records == result.records
    assert len(run_study(home, study, only=["batch=2"]).cells) == 1


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('policies = ["lru", "belady"]', "policies = []", "policies is empty"),
        ("residencies = [0.6]", "residencies = [1.6]", "residencies: 1.6: must lie in"),
        ('predictor = "previous"', 'predictor = "mamba2"', "minutes is missing"),
        ('predictor = "previous"', 'predictor = "previos"', "did you mean 'previous'"),
        ("warm_up = 4", "warmup = 4", "did you mean 'warm_up'"),
        ("batches = [2, 4]", "batches = [0]", "batches must be at least 1"),
        ('"rtx4090"', '"rtx4091"', "links: hardware profile 'rtx4091' .* did you mean 'rtx4090'"),
        ('"rtx4090"', '"nan"', "links: 'nan': must be experts per layer above 0"),
        ('"rtx4090"', '"-1"', "links: '-1': must be"),
        ('"rtx4090"', '"0"', "links: '0': must be"),
        ('"rtx4090"', '"inf"', "links: 'inf': must be .*'unlimited'"),
        ('links = ["rtx4090", "unlimited"]', "", "links: 'seqmoe' prefetches: it would have no rows"),
        ('"belady"]', '"belady"]\nlinks = ["0.9"]', r"block\[1\]: links: 0.9: no policy of the block prefetches"),
        ('"seqmoe", "learned"', '"seqmo"', "policies: 'seqmo' is unknown; did you mean 'seqmoe'"),
        ('"learned"', '"lru+matriod"', "policies: 'lru.matriod': prefetching order 'matriod' is unknown"),
        ('predictor = "previous"', "", "predictor: 'seqmoe' works on forecasts"),
        ('predictor = "previous"', 'predictor = "early_router"', "predictor: 'early_router' looks a layer ahead"),
        ('"learned"', '"use_head"', "predictor: 'previous': 'use_head' needs one that is trained"),
        ("batches = [2, 4]", 'batches = [1, 2]\ncontract = "sequential"', "batches: 2: accesses have an order"),
    ],
)
def test_a_suite_with_a_mistake_says_where(tmp_path, before, after, message) -> None:
    path = tmp_path / "small.toml"
    assert before in SUITE
    path.write_text(SUITE.format(traces="t").replace(before, after), encoding="utf-8")
    with pytest.raises(InputError, match=message) as error:
        find_study(find_home(), path)
    assert str(error.value).startswith(f"{path}: profile.quick")


def test_a_record_that_lacks_its_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="observations lack rows, links, predictor"):
        ReplayRecord(1, "replay", cell(), cell().key, Status("ok"), {"traces": {"digest": "0" * 12}}, {}, "", 1.0)
