"""Protects figures 3 and 7: what is drawn and written comes from the rows, and the sentences say what these say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from replay_records import BATCHES, RATES, record, records, row
from report_samples import HOME

from seqmoe.harness.record import Status
from seqmoe.report import style
from seqmoe.report.figure3 import Figure3
from seqmoe.report.figure7 import Figure7
from seqmoe.report.paper import claims
from seqmoe.report.parts import part3, part7
from seqmoe.report.replay_findings import facts3, facts7, sentence3, sentences7
from seqmoe.report.replay_tables import replay_table, rows_frame
from seqmoe.report.replays import groups_of
from seqmoe.report.writer import write_report

CLAIMS = claims(HOME)
REAL = "gpt-oss-20b.npz"


@pytest.fixture
def seven():
    return Figure7(groups_of(records("fig7", REAL)), CLAIMS)


def test_cells_of_the_same_traces_are_one_group_and_real_traces_come_first() -> None:
    real, own = groups_of([*records("fig7"), *records("fig7", REAL)])
    assert real.source == "real routing of gpt-oss-20b" and own.source == "the reference model's own routing"
    assert set(real.links) == {"rtx4090", "1.39", "rtx5090", "rtx-pro-6000", "unlimited"} and real.residencies == [
        0.15,
        0.25,
        0.35,
        0.45,
    ]
    assert {one.row.policy for one in real.rows} == {p for r in records("fig7") for p in r.cell.policies}


def test_rows_of_other_forecasts_other_batches_and_failed_cells_are_not_mixed_in() -> None:
    paper, beyond = records("fig7", REAL)
    other = replace(beyond, observations=beyond.observations | {"predictor": {"kind": "mamba2", "minutes": 1.0}})
    (group,) = groups_of([paper, other])
    assert group.find("learned", 0.15) is not None and group.find("lru", 0.15) is None  # the newest
    failed = record(beyond.cell, Status("unsupported", "no forecasts"))
    two = record(replace(paper.cell, batch=2))
    alone, together = groups_of([paper, failed, two])
    assert alone.absent == (("beyond", "unsupported", "no forecasts"),) and alone.find("lru", 0.15) is not None
    assert together.source.endswith("batches of 2")


def test_panels_draw_the_rows(seven) -> None:
    (group,) = seven.groups
    plots = seven.panels(group)
    assert [plot.title for plot in plots] == [
        "0.90 experts per layer", "1.39 experts per layer", "Any number of prefetches", "Printed in the paper",
        "Eviction alone", "Over the link", "By layer", "By place",
    ]  # fmt: skip
    for plot, places in zip(plots[6:], (24, 2), strict=True):
        moved = {line.name: line for line in plot.lines}
        row = group.find("seqmoe", 0.25, "rtx4090").row
        told = row.by_layer if places == 24 else row.by_band
        assert moved["prefetched"].y == tuple(
            count / tokens for count, tokens in zip(told.sent, told.tokens, strict=True)
        )
        assert len(moved) == 4 and len(moved["loaded on demand"].x) == places and not plot.empty
    lines = {line.name: line for line in plots[0].lines}
    ours = lines["SeqMoE"]
    assert ours.x == (0.15, 0.25, 0.35, 0.45) and ours.strong and len(ours.low) == 4
    assert ours.y == tuple(group.find("seqmoe", r, "rtx4090").row.hit_rate for r in ours.x)
    assert lines["LRU"].y == tuple(group.find("lru", r).row.hit_rate for r in ours.x)
    assert lines["Belady (bound)"].look == "dashed" and len({line.colour for line in plots[0].lines}) >= 7
    ticks = {tick.name: tick.value for tick in plots[3].ticks}
    assert (ticks["15%\nSeqMoE"], ticks["45%\nLRU"]) == (0.8456, 0.885) and len(ticks) == 8
    assert plots[0].ends == plots[3].ends


def test_the_paired_interval_tells_small_steady_differences(seven) -> None:
    (group,) = seven.groups
    ours, theirs = group.find("seqmoe", 0.15, "rtx4090"), group.find("seqmoe_infinity", 0.15, "rtx4090")
    low, high = ours.ahead_of(theirs)
    assert 0 < low <= 100 * (ours.row.hit_rate - theirs.row.hit_rate) <= high < 2


def test_sentences_say_whether_the_forecast_beats_lru_and_lfu(seven) -> None:
    (group,) = seven.groups
    first, *_ = sentences7(group)
    assert first.startswith("At 15% LRU has 44.0%, LFU 47.0%; CacheScore as printed beats both with 54.0%, 42% of")
    assert "the best variant, learned score, beats both with 57.0%" in first
    worse = records("fig7", REAL, rates=RATES | {"seqmoe_cache_only": 0.44, "learned": 0.40})
    text = sentences7(groups_of(worse)[0])[0]
    assert "CacheScore as printed equals LRU and loses to LFU with 44.0%, 0% of the way" in text
    prefetching = next(text for text in sentences7(group) if text.startswith("Matroid greedy"))
    assert "+0.8 points at 15%" in prefetching and "0.90 a layer (rtx4090)" in prefetching


def test_the_best_variant_is_said_to_be_picked_on_the_test_sequences(seven) -> None:
    (group,) = seven.groups
    assert sum("picked by its hit rate on the test sequences" in text for text in sentences7(group)) == 1
    assert any("picked on these sequences" in fact.detail for fact in facts7(seven, group))
    printed = [r for r in records("fig7", REAL) if r.cell.panel == "paper"]
    assert not any("best variant" in text for text in sentences7(groups_of(printed)[0]))


def test_prefetching_is_set_against_lru_and_lfu_at_each_residency(seven) -> None:
    (group,) = seven.groups
    found = [text for text in sentences7(group) if text.startswith("With prefetching")]
    for at, text in zip(("15%", "25%", "35%", "45%"), found, strict=True):
        assert f"SeqMoE at {at} beats both with" in text
    ours = group.find("seqmoe", 0.15, "rtx4090").row.hit_rate
    assert f"with {ours:.1%}, where LRU has 44.0% and LFU 47.0% without any" in found[0]
    assert "with the same prefetching they have 66.3% and 66.3%, and it loses to both." in found[0]


def test_few_sequences_give_numbers_and_no_verdict() -> None:
    few = [
        replace(one, observations=one.observations | {"rows": [
            values | {"batches": values["batches"][:1], "interval": (0.5, 0.5)} for values in one.observations["rows"]
        ]})
        for one in records("fig7", REAL)
    ]  # fmt: skip
    figure = Figure7(groups_of(few), CLAIMS)
    (group,) = figure.groups
    text = " ".join(sentences7(group))
    assert text.startswith("With 1 test sequence no interval can be given (5 are the least)")
    assert "CacheScore as printed is above both with" in text
    assert not {"beats", "loses"} & set(text.replace(";", " ").split())
    earlier = {"by_layer", "by_band", "assignment_rate", "expert_bytes"}
    old = [
        replace(one, observations=one.observations | {"rows": [
            {name: row[name] for name in row if name not in earlier} for row in one.observations["rows"]
        ]})
        for one in few
    ]  # fmt: skip
    (before,) = groups_of(old)
    assert len(figure.panels(before)) == len(figure.panels(group)) - 2
    assert rows_frame([group])["low"].isna().all() and group.rows[0].ahead_of(group.rows[1]) is None
    assert all(not line.low for plot in figure.panels(group) for line in plot.lines)


def test_facts_set_the_paper_beside_ours(seven) -> None:
    (group,) = seven.groups
    facts = facts7(seven, group)
    assert facts[0].printed == "91.7% against 74.2%"
    assert facts[0].value == f"{group.find('seqmoe', 0.25, 'rtx4090').row.hit_rate:.1%}"


def test_figure_3_judges_the_papers_order() -> None:
    figure = Figure3(groups_of(records("fig3", REAL)), CLAIMS)
    (group,) = figure.groups
    assert [len(plot.lines) for plot in figure.panels(group)] == [5, 3, 5]
    order = "(Belady ≥ Belady-8 ≥ Belady-F8 > LRU ≈ LFU at 15–45% residency)"
    assert f"{order} holds at every residency here. LFU is" in sentence3(figure, group)
    assert len(facts3(group)) == 4
    broken = groups_of(records("fig3", REAL, rates=RATES | {"belady_f8": 0.45}))[0]
    assert "does not hold at 15%, 25%, 35%, 45%" in sentence3(figure, broken)


def test_the_table_marks_the_best_of_each_link_and_no_bound(seven) -> None:
    (group,) = seven.groups
    table = replay_table(group)
    column = table.headings.index("15%")
    best = {row[1].text: row[0].text for row in table.rows if row[column].best}
    links = ("0.90", "1.39", "1.40", "0.66", "any")
    assert best == {"–": "Learned score"} | dict.fromkeys(links, "Learned score + matroid")
    frame = rows_frame([group])
    assert len(frame) == len(group.rows) and frame["bytes_on_demand"].notna().all()


def test_a_report_has_the_sections_the_pictures_and_the_data(tmp_path) -> None:
    written = write_report([*records("fig3", REAL), *records("fig7", REAL), *records("fig7")], HOME, tmp_path)
    page = written.page_of("7").read_text(encoding="utf-8")
    assert "How many experts are on the device when they are needed" in page and "of the way to Belady" in page
    for figure in ("3", "7"):
        files = written.figures[figure]
        assert files.png.stat().st_size > 10_000 and files.svg.is_file() and files.csv.is_file()
    assert style.POLICIES["lru"][1] in page and "var(--ink)" in page


def test_nothing_recorded_says_how_to_run_it_and_shows_what_is_printed() -> None:
    for part, figure in ((part3([], HOME), "3"), (part7([], HOME), "7")):
        assert not part.drawn and f"nox -s reproduce-fig{figure}" in part.section.body
    assert "Printed in the paper" in part7([], HOME).section.body
    assert len(row("lru", 0.15, 0.0).batches) == BATCHES
