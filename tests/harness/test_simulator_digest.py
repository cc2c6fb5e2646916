"""Protects that simulated cells are computed anew when a constant, a declaration or the simulator itself changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from harness_samples import cell

from seqmoe.harness.simulator_digest import simulator_digest
from seqmoe.harness.weights import Weights
from seqmoe.spec.paths import Home, find_home

REAL = find_home(Path(__file__).parent)
POINT = cell(lane="simulated", hardware="rtx4090", model="qwen3-30b-a3b-fp8", dataset="synthetic routing")


@pytest.fixture
def copied(tmp_path: Path) -> Home:
    shutil.copytree(REAL.suites, tmp_path / "suites")
    shutil.copytree(REAL.paper, tmp_path / "results" / "paper")
    return Home(tmp_path, tmp_path, "clone")


@pytest.mark.parametrize(
    "file", ["simulation/calibration.toml", "hardware/rtx4090.toml", "models/qwen3-30b-a3b-fp8.toml"]
)
def test_what_the_numbers_come_from_changes_the_digest_and_nothing_else_does(copied: Home, file: str) -> None:
    first = simulator_digest(copied, POINT)
    (copied.suites / "models" / "gpt-oss-120b-mxfp4.toml").write_text("another model")
    assert simulator_digest(copied, POINT) == first == simulator_digest(REAL, POINT)
    with (copied.suites / file).open("a") as stream:
        stream.write("\n")
    assert simulator_digest(copied, POINT) != first


def test_a_simulated_cell_has_a_simulator_and_no_weights() -> None:
    found = Weights(REAL).of(POINT)
    assert found == {"model": None, "predictor": None, "simulator": simulator_digest(REAL, POINT)}
