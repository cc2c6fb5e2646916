"""Protects how the simulator is judged: errors, held-out bars, and the order of systems, on values made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqmoe.simulate.calibrate.errors import Judged, order, summaries
from seqmoe.simulate.calibrate.figure6 import BATCH_RESIDENCY, Point, points
from seqmoe.simulate.calibrate.file import write_constants
from seqmoe.simulate.calibrate.fit import FITTED, with_value
from seqmoe.simulate.calibrate.routing import NAMES, targets
from seqmoe.spec.calibration import load_calibration
from seqmoe.spec.declared import build, read_toml
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import find_home
from seqmoe.spec.printed import claim_values, figure6_bars

HOME = find_home(Path(__file__).parent)
POINTS = points(HOME)
CALIBRATION = load_calibration(HOME)


def cell(panel: str, model: str, x: float) -> list[Point]:
    return [p for p in POINTS if (p.bar.panel, p.bar.model, p.bar.x) == (panel, model, x) and p.system != "full"]


def test_every_bar_is_a_point_and_full_load_one_of_its_panel() -> None:
    printed = [bar for bar in figure6_bars(HOME) if bar.value is not None and bar.system != "FullLoad"]
    assert len([point for point in POINTS if point.system != "full"]) == len(printed)
    assert len([point for point in POINTS if point.system == "full"]) == 8
    assert {point.residency for point in POINTS if point.bar.panel == "batch"} == {BATCH_RESIDENCY}
    assert {point.batch for point in POINTS if point.bar.panel == "batch"} == {1, 2, 4}


def test_errors_are_relative_and_fitted_bars_are_apart() -> None:
    four = cell("decode-short", "GPT-OSS-120B-MXFP4", 0.45)
    judged = [Judged(point, point.printed * factor, fitted) for point, factor, fitted in
              zip(four, (1.1, 0.8, 1.0, 1.3), (False, False, True, False), strict=True)]  # fmt: skip
    rows = {(row.system, row.fitted): row for row in summaries(judged)}
    assert rows["all", False].bars == 3 and rows["all", True].bars == 1
    assert rows["all", False].median == pytest.approx(0.2)
    assert rows["all", False].worst == pytest.approx(0.3)
    assert rows["all", False].bias == pytest.approx(0.2 / 3)


def test_one_wrong_pair_makes_a_cell_wrong_and_leaves_the_other_pairs_right() -> None:
    four = sorted(cell("decode-short", "GPT-OSS-120B-MXFP4", 0.45), key=lambda point: point.printed)
    right = [Judged(point, point.printed, False) for point in four]
    found = order(right, "decode")
    assert (found.cells, found.cells_right, found.pairs, found.pairs_right) == (1, 1, 6, 6)
    swapped = [right[0], Judged(four[1], four[2].printed, False), Judged(four[2], four[1].printed, False), right[3]]
    found = order(swapped, "decode")
    assert (found.cells_right, found.pairs_right) == (0, 5)
    inputs = [Judged(point, 1.0, True) for point in four]
    assert order(inputs, "decode").cells == 0
    assert order(right, "ttft").cells == 0


def test_every_constant_is_fitted_by_something() -> None:
    groups = {name for group in FITTED for name in group.constants}
    groups |= {f"routing.{name}" for name in NAMES} | {f"overhead.{point.model.name}" for point in POINTS}
    assert groups == {constant.name for constant in CALIBRATION.constant}
    assert targets(CALIBRATION, claim_values(HOME)) == {
        "repeat_1": 0.45, "repeat_8": 0.80, "lru_15": pytest.approx(0.6002), "lru_45": pytest.approx(0.885),
    }  # fmt: skip


def test_constants_are_written_and_all_else_is_left(tmp_path: Path) -> None:
    path = HOME.suites / "simulation" / "calibration.toml"
    copy = tmp_path / "calibration.toml"
    copy.write_text(path.read_text())
    changed = with_value(CALIBRATION, "llama_cpp.cpu_efficiency", 0.123456)
    write_constants(copy, changed)
    assert build(type(CALIBRATION), read_toml(copy), "copy") == changed
    assert changed.value("llama_cpp.cpu_efficiency") == 0.1235
    write_constants(copy, CALIBRATION)
    assert build(type(CALIBRATION), read_toml(copy), "copy") == CALIBRATION
    copy.write_text(copy.read_text().replace("pageable.bandwidth", "pageable.width"))
    with pytest.raises(InputError, match=r"pageable\.bandwidth"):
        write_constants(copy, CALIBRATION)
