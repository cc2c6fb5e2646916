"""`seqmoe compare`: which records stand against each other, and what may be said of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from harness_samples import record, timed

from seqmoe.harness.comparing.comparison import compare_sides
from seqmoe.harness.comparing.judging import interleaved
from seqmoe.harness.record import Record, Status
from seqmoe.harness.store import Store
from seqmoe.spec.errors import InputError

OLD, NEW = "a" * 40, "b" * 40


def repeats(gap_ms: float, *, count: int = 8, revision: str = OLD, host: str = "box", first: int = 0, **about) -> list:
    """``count`` records of a cell whose tokens come ``gap_ms`` apart, a little more each time; two minutes between."""
    environment = {"host": host, "git": {"revision": revision, "dirty": False}} | about.pop("environment", {})
    made = []
    for index in range(count):
        prompts = [timed([gap_ms + 0.01 * index] * 3) for _ in range(2)]
        one = record(prompts, repeat=index, environment=environment, **about)
        minute = first + 2 * index
        made.append(dataclasses.replace(one, started=f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"))
    return made


def store(path: Path, records: list[Record]) -> Path:
    with Store(path) as opened:
        for one in records:
            opened.append(one)
    return path


@pytest.fixture
def compare(home, tmp_path):
    """Compare two lists of records as the two files of a clone."""

    def run(a, b, **options):
        files = [store(tmp_path / f"{name}.jsonl", records) for name, records in (("a", a), ("b", b))]
        return compare_sides(home, *map(str, files), **options)

    return run


def test_a_slower_b_is_a_regression(compare):
    found = compare(repeats(5), repeats(7, first=1))
    (cell,) = found.cells
    assert (cell.verdict, cell.regression, cell.interleaved, cell.note) == ("slower", True, True, "")
    assert cell.ratio.median == pytest.approx(5.035 / 7.035, rel=1e-3)
    assert cell.ratio.low <= cell.ratio.median <= cell.ratio.high < 1
    assert cell.p_value == pytest.approx(2 / 12870)  # all 16! / (8! 8!) deals, one each way
    assert found.regressions == 1 and found.counts["slower"] == 1


def test_a_faster_b_is_none(compare):
    (cell,) = compare(repeats(7), repeats(5, first=1)).cells
    assert (cell.verdict, cell.regression) == ("faster", False)


def test_within_five_percent_is_the_same(compare):
    (cell,) = compare(repeats(5), repeats(5.2, first=1)).cells
    assert (cell.verdict, cell.regression) == ("same", False)


def test_seven_repeats_are_too_few_whatever_the_ratio(compare):
    (cell,) = compare(repeats(5), repeats(50, count=7)).cells
    assert (cell.verdict, cell.regression, cell.note) == ("too few repeats", False, "7 of 8")


def test_one_side_after_the_other_is_said(compare):
    (cell,) = compare(repeats(5), repeats(7, first=100)).cells
    assert (cell.verdict, cell.interleaved, cell.note) == ("slower", False, "not interleaved")


def test_rounds_may_begin_with_either_side():
    def at(*minutes):
        return [dataclasses.replace(record(), started=f"2026-01-01T00:{m:02}:00Z") for m in minutes]

    assert interleaved(at(0, 3, 4, 7), at(1, 2, 5, 6))
    assert not interleaved(at(0, 1, 2, 3), at(4, 5, 6, 7))
    assert not interleaved(at(0, 1, 6, 7), at(2, 3, 4, 5))


def test_latency_counts_as_its_inverse(compare):
    found = compare(repeats(5), repeats(7, first=1), metric="itl_s")
    (cell,) = found.cells
    assert cell.verdict == "slower" and cell.ratio.median < 1
    assert cell.a.median < cell.b.median


def test_the_suite_says_how_much_slower_is_too_much(compare, home):
    suite = home.suites / "demo.toml"
    suite.write_text(suite.read_text().replace("[profile.quick]", "[regression]\nthreshold = 0.5\n[profile.quick]"))
    (cell,) = compare(repeats(5), repeats(7, first=1)).cells
    assert (cell.verdict, cell.regression) == ("slower", False)


def test_a_crash_that_a_does_not_have_is_a_regression(compare):
    crash = [record(status=Status("crash", "boom"), environment={"host": "box"})]
    (cell,) = compare(repeats(5), crash).cells
    assert (cell.verdict, cell.regression, cell.note) == ("failed", True, "b: crash(boom)")


def test_what_cannot_be_started_on_b_is_missing(compare):
    absent = [record(status=Status("not_installed", "no environment"), environment={"host": "box"})]
    (cell,) = compare(repeats(5), absent).cells
    assert (cell.verdict, cell.regression) == ("missing", False)


def test_cells_without_a_figure_on_either_side_are_counted_apart(compare):
    absent = [record(status=Status("unsupported", "no GPU"), environment={"host": "box"}, system="rival")]
    found = compare([*repeats(5), *absent], [*repeats(5), *absent])
    assert len(found.cells) == 1
    assert "without a figure on either side: 1 cell" in found.remarks


def test_systems_stand_against_each_other_on_the_same_work(home):
    host = home.results / "box"
    records = [*repeats(5), *repeats(4, system="seqmoe", first=1), *repeats(3, system="seqmoe", residency=0.5)]
    records += repeats(2, system="full", residency=1.0)
    store(host / "demo.jsonl", records)
    found = compare_sides(home, "lru", "seqmoe")
    (cell,) = found.cells
    assert (found.kind, cell.verdict) == ("system", "faster")
    assert "without a counterpart: 1 cell of seqmoe" in found.remarks
    # Full load has no residency: it stands against each.
    assert len(compare_sides(home, "full", "seqmoe").cells) == 2


def test_revisions_and_hosts_are_found_in_the_records(home):
    store(home.results / "box" / "demo.jsonl", [*repeats(5), *repeats(7, revision=NEW, first=1)])
    store(home.results / "other" / "demo.jsonl", repeats(6, host="other"))
    (cell,) = compare_sides(home, OLD[:8], NEW[:8]).cells
    assert (cell.verdict, cell.pair.host) == ("slower", "box")
    assert compare_sides(home, "box", "other").remarks[0] == "different machines: box and other"


def test_records_of_other_machines_are_never_mixed(home):
    store(home.results / "box" / "demo.jsonl", [*repeats(5), *repeats(5, revision=NEW, first=1)])
    store(home.results / "other" / "demo.jsonl", repeats(50, host="other", revision=NEW))
    (cell,) = compare_sides(home, OLD, NEW).cells
    assert cell.verdict == "same"


def test_other_weights_are_another_model(compare):
    a, b = (repeats(5, environment={"weights": {"model": digest}}) for digest in ("1", "2"))
    with pytest.raises(InputError, match="weights differ: 1 cell"):
        compare(a, b)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("lru", "seqmo"), "did you mean 'seqmoe'"),
        (("lru", "box"), "a system is compared with another system"),
        (("no/such", "lru"), "no such file or folder"),
        (("x.jsonl", "lru"), "no such file or folder"),
        (("c0ffee", "lru"), "no such folder or file, and no host, system or revision"),
    ],
)
def test_names_that_stand_for_nothing_are_refused(home, names, message):
    store(home.results / "box" / "demo.jsonl", [*repeats(5), *repeats(5, system="seqmoe")])
    with pytest.raises(InputError, match=message):
        compare_sides(home, *names)


def test_an_unknown_metric_names_the_nearest(home):
    with pytest.raises(InputError, match="did you mean 'ttft_s'"):
        compare_sides(home, "a", "b", "ttft")
