"""A study computes every cell once on the same traces, side by side, and a cell that fails fills only itself."""

from __future__ import annotations

import io
import json

import pytest
from harness_samples import processes_with
from study_samples import STUDY, computed, evaluation, fake_command, write_study, write_traces

from seqmoe.harness.record import Status
from seqmoe.harness.store import read_records
from seqmoe.harness.studies.kinds import find_study
from seqmoe.harness.studies.progress import Estimate, PlainProgress
from seqmoe.harness.studies.record import ANY, STUDIES, latest_of_cells
from seqmoe.harness.studies.runner import run_study
from seqmoe.spec.errors import InputError
from seqmoe.spec.study import trace_name


@pytest.fixture
def small(home):
    write_study(home)

    def run(behaviour=None, **options):
        return run_study(home, find_study(home, "small"), command=fake_command(home, behaviour), **options)

    return run


def names(cells):
    return [f"{cell.predictor}/{cell.variant}" for cell in cells]


ALL = ["mamba2/", "transformer/", "previous/", "popularity/", "mamba2/base", "mamba2/Psi off"]


def test_every_cell_is_computed_once_and_stored_with_what_it_came_from(home, small) -> None:
    result = small()
    assert names(result.cells) == ALL and result.written == 6 and result.failed == ()
    assert result.path == home.results / result.host / "small.jsonl"
    assert read_records(result.path, STUDIES) == read_records(result.path, ANY)
    for record in result.records:
        traces = record.observations["traces"]
        assert (traces["model"], traces["requests"], traces["tokens"], traces["train"]) == ("tiny", 12, 480, 9)
        assert len(record.digest) == 12 and record.environment["threads"] == 1 and record.seconds > 0
    again = small()
    assert again.written == 0 and again.to_run == () and len(computed(home)) == 6
    assert again.records == result.records
    assert small(resume=False).written == 6
    assert processes_with(str(home.work)) == []


def test_no_record_holds_a_path(home, small) -> None:
    small()
    assert str(home.work) not in small(traces=str(home.work / "routing-0"), resume=False).path.read_text()


def test_two_traces_of_one_name_are_refused(home, small) -> None:
    declared = home.suites / "small.toml"
    declared.write_text(declared.read_text().replace("routing-0", "other/routing-0", 1))
    with pytest.raises(InputError, match="the same name"):
        small()


def test_other_traces_under_the_same_name_are_computed_anew(home, small) -> None:
    small(only=["predictor=previous"])
    folder = home.work / "routing-0"
    for path in folder.iterdir():
        path.unlink()
    write_traces(folder, seed=1)
    result = small(only=["predictor=previous"])
    assert result.written == 1 and len(latest_of_cells(read_records(result.path, STUDIES))) == 2
    assert len(result.records) == 1
    assert computed(home)[0]["work"] != computed(home)[1]["work"]


def test_given_traces_take_the_place_of_the_declared_ones_with_their_own_budget(home, small) -> None:
    other = write_traces(home.work / "mine", seed=3)
    result = small(traces=str(other), only=["panel=predictors"])
    assert {cell.traces for cell in result.cells} == {"mine"}
    assert {cell.predictor: cell.minutes for cell in result.cells}["mamba2"] == 0.02
    assert {request["source"] for request in computed(home)} == {str(other)}
    assert trace_name("hf://datasets/a/b") == "hf://datasets/a/b" and trace_name("reference") == "reference"


@pytest.mark.parametrize(
    ("only", "chosen"),
    [
        (["mamba2"], ["mamba2/", "mamba2/base", "mamba2/Psi off"]),
        (["predictor=mamba2,panel=ablation"], ["mamba2/base", "mamba2/Psi off"]),
        (["variant=Psi off"], ["mamba2/Psi off"]),
        (["transformer", "previous"], ["transformer/", "previous/"]),
    ],
)
def test_only_chooses_cells(small, only, chosen) -> None:
    result = small(only=only, dry_run=True)
    assert names(result.cells) == names(result.to_run) == chosen and result.written == 0


@pytest.mark.parametrize(
    ("behaviour", "kind", "words", "again"),
    [
        ("crash", "crash", "the last words of .../place.py", 0),
        ("killed", "crash", "SIGKILL", 2),
        ("unsupported", "unsupported", "no early router", 0),
    ],
)
def test_a_cell_that_fails_fills_itself_and_leaves_the_rest(home, small, behaviour, kind, words, again) -> None:
    result = small({"previous": behaviour, "base": behaviour})
    found = {f"{r.cell.predictor}/{r.cell.variant}": r.status for r in result.records}
    assert len(found) == 6 and {name for name, status in found.items() if not status.ok} == {"previous/", "mamba2/base"}
    assert {status.kind for status in found.values()} == {"ok", kind} and words in found["previous/"].reason
    assert "/home" not in found["previous/"].reason
    expected = [] if kind == "unsupported" else ["previous/", "mamba2/base"]
    assert names(result.failed) == expected
    assert small().written == again


def test_a_result_stays_when_a_later_try_fails(small) -> None:
    first = small(only=["previous"])
    later = small({"previous": "crash"}, only=["previous"], resume=False)
    assert later.written == 1 and later.records == first.records


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("minutes = 0.01", "minuts = 0.01"), "unknown key 'minuts'; did you mean 'minutes'?"),
        (('["mamba2", "transformer"]', '["mamab2"]'), "predictors: 'mamab2'; did you mean 'mamba2'?"),
        (("psi = false", "pssi = false"), "unknown key 'pssi'; did you mean 'psi'?"),
        (("psi = false", 'loss = "kll"'), "loss = 'kll'; did you mean 'kl'?"),
        (('study = "prediction"', 'study = "predictions"'), "study = 'predictions'; did you mean 'prediction'?"),
        (("minutes = 0.01\nminutes_given_traces = 0.02", ""), "minutes is missing: mamba2, transformer"),
        (("schema = 1", "schema = 9"), "schema = 9: this version reads 1"),
        (('title = "Psi off"', 'title = "base"'), "two of them have the same title"),
        (('["previous", "popularity"]', '["previous", "popularity"]\nvariant = [{{title="x"}}]'), "only mamba2 and"),
    ],
)
def test_what_is_declared_wrongly_is_named_with_its_file(home, change, words) -> None:
    assert change[0] in STUDY
    write_study(home, STUDY.replace(*change))
    with pytest.raises(InputError) as error:
        find_study(home, "small")
    assert words in str(error.value) and "small.toml" in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"traces": "absent.npz"}, "traces 'absent.npz': no such file or folder"),
        ({"profile": "quik"}, "did you mean 'quick'?"),
        ({"only": ["mamab2"]}, "did you mean 'mamba2'?"),
        ({"only": ["predictr=mamba2"]}, "did you mean 'predictor'?"),
        ({"threads": 0}, "--threads 0"),
        ({"threads": 100_000}, "--threads 100000"),
    ],
)
def test_wrong_input_is_found_before_anything_runs(home, small, options, words) -> None:
    with pytest.raises(InputError) as error:
        small(**options)
    assert words in str(error.value) and computed(home) == []
    assert not home.results.exists()


def test_a_suite_of_systems_is_no_study(home) -> None:
    assert find_study(home, "demo") is None


def test_plain_progress_says_what_came_out_and_what_is_left(home) -> None:
    write_study(home)
    study, stream = find_study(home, "small"), io.StringIO()
    progress = PlainProgress(stream, every=0.0)
    command = fake_command(home, {"previous": "unsupported"})
    run_study(home, study, command=command, progress=progress, only=["mamba2,panel=predictors", "previous"])
    text = stream.getvalue()
    assert "recall 0.800, Seq-8 0.750" in text and "0.1 min, 0.00 M tokens, loss 1.500, recall 0.500" in text
    assert "unsupported: the traces have no early router" in text and "[2/2]" in text


def test_the_estimate_fills_the_cores(home) -> None:
    write_study(home)
    cells = find_study(home, "small").suite.cells("quick")[:3]
    now = [0.0]
    estimate = Estimate(cells, 2, lambda cell: 60.0, lambda: now[0])
    assert estimate.seconds() == 3 * 90 / 2  # half a minute beyond the budget until one has told
    for cell in cells[:2]:
        estimate.begin(cell)
    now[0] = 70.0
    estimate.end(cells[0], 70.0)
    assert estimate.seconds() == 70.0  # the third has yet to begin, and takes as long as the first
    assert Estimate().seconds() == 0.0


def test_a_dry_run_says_how_long_it_would_take(small) -> None:
    # One cell at a time: half a minute for each of six, and four that train for 0.01 minutes.
    assert small(dry_run=True, threads=1_000).seconds == pytest.approx(6 * 30.0 + 4 * 0.6)
    small(only=["previous", "popularity"])
    assert small(dry_run=True, threads=1_000).seconds == pytest.approx(4 * 30.0 + 4 * 0.6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cell_key": "0" * 12}, "never edited"),
        ({"schema": 7}, "schema = 7.*upgrade"),
        ({"study": "predicton"}, "did you mean 'prediction'"),
        ({"observations": {"traces": {}}}, "traces.digest is missing"),
        ({"observations": {"traces": {"digest": "x"}}}, "observations lack evaluation"),
        ({"more": 1}, "unknown key 'more'"),
    ],
)
def test_a_damaged_record_is_an_error_with_file_and_line(small, change, words) -> None:
    result = small(only=["previous"])
    line = json.loads(result.path.read_text())
    result.path.write_text(json.dumps(line | change) + "\n")
    with pytest.raises(InputError, match=f"small.jsonl:1: .*{words}"):
        read_records(result.path, STUDIES)


def test_a_failure_needs_no_observations(small) -> None:
    (record,) = small({"previous": "crash"}, only=["previous"]).records
    assert record.status.kind == "crash" and set(record.observations) == {"traces"}
    assert Status("ok").ok and evaluation().top_k == 2
