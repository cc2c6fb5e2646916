"""Protects the figures beyond the paper: lines, rooflines and words are those of the records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report_samples import HOME, cell, record

from seqmoe.report import style
from seqmoe.report.cpu_misses import CpuMisses
from seqmoe.report.registry import FIGURES
from seqmoe.report.sweep import Sweep, rival_of, rows_of
from seqmoe.report.sweep_section import part_sweep
from seqmoe.spec.suite import load_suite

MODEL = "qwen3-30b-a3b-fp8"


def simulated(system: str, held: float, speed: float, panel: str, what: str = "", hardware: str = "rtx4090"):
    point = cell(suite="sweep", panel=panel, system=system, model=MODEL, lane="simulated", hardware=hardware,
                 residency=held, dataset="synthetic routing", what_if=what)  # fmt: skip
    return record(point, speed, stats={"hit_rate": 0.9})


def records():
    found = []
    for held, base in ((0.15, 20.0), (0.45, 60.0)):
        for link, factor in ((12.5, 1.0), (50.0, 1.5)):
            text = f"link={link}"
            found.append(simulated("seqmoe", held, base * factor, "link", text))
            found.append(simulated("lru", held, base * factor / 2, "link", text))
            found.append(simulated("bound", held, 2 * base * factor, "link", text))
        for recall, share in ((0.6, 0.5), (0.909, 1.0), (0.99, 0.8 if held == 0.45 else 1.1)):
            found.append(simulated("seqmoe", held, base * share, "recall", f"recall={recall}"))
        found.append(simulated("lru", held, base / 3, "recall"))
    return found


def misses():
    pairs = [(0.15, 40.0, 50.0), (0.45, 80.0, 79.9)]
    found = []
    for held, loading, split in pairs:
        found.append(simulated("seqmoe", held, loading, "misses"))
        found.append(simulated("seqmoe_cpu", held, split, "misses"))
    return found


def test_lines_are_of_the_records() -> None:
    (group,) = Sweep(records()).groups
    assert group.residencies == [0.15, 0.45] and group.links == [12.5, 50.0]
    assert group.line("link", "seqmoe", 0.45) == pytest.approx({12.5: 60.0, 50.0: 90.0})
    assert rival_of(group, 0.15) == pytest.approx(20 / 3)
    over_link, rivals, over_recall = Sweep(records()).panels(group)
    assert [line.look for line in over_link.lines] == ["solid", "dashed"] * 2
    assert rivals.lines[0].y == pytest.approx((10.0, 15.0)) and over_link.lines[1].y == pytest.approx((40.0, 60.0))
    assert over_recall.lines[0].x == (0.6, 0.909, 0.99) and over_recall.lines[1].look == "dotted"
    assert rows_of([group])[1] == (f"{MODEL}, 45%", "60.0 (120)", "90.0 (180)")


def test_words_name_what_is_left_of_the_roofline_and_where_recall_stops_to_help() -> None:
    words = Sweep(records()).sentences()
    assert "20.0 tok/s over 12.5 GB/s, 50% of what the link" in words[0]
    assert any("With 45% held, a recall of 60% gives 30.0 tok/s and one of 90.9% 60.0" in text for text in words)
    assert words[-1].startswith("With 45% held, a recall above that is slower")
    helped = [one for one in records() if one.cell.what_if != "recall=0.99"]
    assert not any("slower" in text for text in Sweep(helped).sentences())


def test_misses_on_the_cpu_are_told_by_machine() -> None:
    found = CpuMisses(misses())
    (machine,) = found.machines
    assert machine.gains == pytest.approx({0.15: 0.25, 0.45: -0.00125}, rel=1e-4)
    assert found.sentences() == [f"{MODEL} on rtx4090: computing misses on the CPU gains 25% with 15% held."]
    assert CpuMisses(misses()[:1]).machines == [] and CpuMisses([]).plots() == []


def test_lanes_have_a_plot_each_and_repeats_their_median() -> None:
    def emulated(one, speed):
        return record(replace(one.cell, lane="emulated", model="reference"), speed)

    loading, split = misses()[:2]
    ours = [emulated(loading, 40.0), *(emulated(split, speed) for speed in (48.0, 99.0, 10.0))]
    found = CpuMisses([*ours, *misses()])
    assert [machine.lane for machine in found.machines] == ["simulated", "emulated"]
    assert [plot.note.partition(";")[0] for plot in found.plots()] == ["simulated", "emulated"]
    words = "reference on rtx4090, emulated: computing misses on the CPU gains 20% with 15% held (repeats: 1)."
    assert found.sentences()[1] == words


def test_the_part_draws_all_of_it_and_says_how_to_when_nothing_was_run() -> None:
    part = part_sweep([*records(), *misses()], HOME)
    assert part.drawn and set(part.data()["panel"]) == {"link", "recall", "misses"}
    with style.theme():
        assert len([axes for axes in part.sheet().axes if axes.lines]) == 4
    assert "Misses shared with the CPU" in str(part.section.body)
    empty = part_sweep([], HOME)
    assert not empty.drawn and "nox -s reproduce-sweep" in str(empty.section.body)


def test_the_site_has_it_and_the_suite_its_panels() -> None:
    assert "sweep" in [entry.figure for entry in FIGURES]
    cells = load_suite(HOME.suites / "sweep.toml").cells("quick")
    assert {point.panel for point in cells} == {"link", "recall", "misses"}
