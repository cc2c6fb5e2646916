"""The transcription of the paper agrees with what the paper's text says of the same bars."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from seqmoe.spec.paths import find_home

HOME = find_home(Path(__file__).parent)


def read(name: str) -> list[dict[str, str]]:
    with (HOME.paper / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


BARS = read("fig6.csv")
CLAIMS = {row["id"]: row for row in read("claims.csv")}
TOP = {"Qwen3-30B-A3B-FP8": 0.45, "Qwen3.6-35B-A3B-BF16": 0.40, "GPT-OSS-120B-MXFP4": 0.45, "DeepSeek-V4-Flash": 0.45}


def bar(model: str, system: str, residency: float) -> float:
    (row,) = (
        r for r in BARS
        if (r["panel"], r["model"], r["system"], float(r["x"])) == ("decode-short", model, system, residency)
    )  # fmt: skip
    return float(row["value"])


def test_every_supported_bar_has_a_value_and_no_crossed_one_has() -> None:
    assert len(BARS) == 288
    for row in BARS:
        assert (row["value"] != "") == (row["supported"] == "1")


@pytest.mark.parametrize(("model", "residency"), TOP.items())
def test_bars_give_the_shares_of_full_load_that_section_9_2_states(model: str, residency: float) -> None:
    share = 100 * bar(model, "SeqMoE", residency) / bar(model, "FullLoad", residency)
    assert share == pytest.approx(float(CLAIMS[f"fullload-fraction-{model}"]["value"]), abs=0.1)


def test_mean_share_is_that_of_the_three_models_that_reach_45_percent() -> None:
    shares = [bar(m, "SeqMoE", r) / bar(m, "FullLoad", r) for m, r in TOP.items() if r == 0.45]
    assert 100 * sum(shares) / 3 == pytest.approx(float(CLAIMS["fullload-fraction-mean"]["value"]), abs=0.05)


def test_bars_of_figure_6_are_those_of_figure_1() -> None:
    for system in ("MoE-Infinity", "llama.cpp", "KTransformers", "SeqMoE", "FullLoad"):
        assert bar("Qwen3-30B-A3B-FP8", system, 0.45) == float(CLAIMS[f"fig1-{system}"]["value"])
