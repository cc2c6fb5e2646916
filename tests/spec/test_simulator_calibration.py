"""Protects the honesty of the simulator: what it was fitted to is a declared list, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqmoe.spec.calibration import Calibration, Constant, Input, load_calibration
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import find_home
from seqmoe.spec.printed import claim_values, figure6_bars

HOME = find_home(Path(__file__).parent)
CALIBRATION = load_calibration(HOME)
QWEN36 = "Qwen3.6-35B-A3B-BF16"


def test_bars_that_are_inputs_are_these_and_no_others() -> None:
    """Full load of the four models, Qwen3.6's short bars at 15 and 40 %, and its TTFT at 15 %."""
    for bar in figure6_bars(HOME):
        full = bar.panel == "decode-short" and bar.system == "FullLoad"
        ends = bar.panel == "decode-short" and bar.model == QWEN36 and bar.x in (0.15, 0.40)
        ttft = bar.panel == "ttft" and bar.model == QWEN36 and bar.x == 0.15
        assert CALIBRATION.is_input_bar(bar.panel, bar.model, bar.system, bar.x) == (full or ends or ttft), bar


def test_claims_that_are_inputs_are_these_and_no_others() -> None:
    claims = claim_values(HOME)
    given = {name for name in claims if name.startswith(("recall-k3-", "predictor-mib-"))}
    given |= {"hit-lru-15", "hit-lru-45", "recall-drop-seq8"}
    assert {name for name in claims if CALIBRATION.is_input_claim(name)} == given
    named = {name for item in CALIBRATION.input for name in item.claims}
    assert named == given, "an input names a claim that the paper does not make"


def test_no_constant_is_of_one_held_out_bar() -> None:
    """Constants are of models (full load), of systems, or of routing: never of a residency, a batch or a length."""
    for constant in CALIBRATION.constant:
        kind, _, name = constant.name.partition(".")
        assert kind in ("routing", "overhead", "seqmoe", "freetoken", "llama_cpp", "ktransformers", "moe_infinity",
                        "pageable"), constant  # fmt: skip
        assert (constant.fitted_on == ("full-load",)) == (kind == "overhead")
        assert name


def test_unknown_constants_and_inputs_are_refused() -> None:
    with pytest.raises(InputError, match=r"did you mean 'seqmoe\.link_efficiency'"):
        CALIBRATION.value("seqmoe.link_eficiency")
    known, stray = Input("a", panel="ttft"), Constant("c", 1.0, "s", ("b",), "x")
    with pytest.raises(ValueError, match="fitted_on 'b'"):
        Calibration(1, (known,), (stray,))
    with pytest.raises(ValueError, match="two have the same name"):
        Calibration(1, (known,), (replace(stray, fitted_on=("a",)),) * 2)
    with pytest.raises(ValueError, match="give one of"):
        Input("a", panel="ttft", claims=("hit-lru-15",))
    with pytest.raises(ValueError, match="need a source"):
        Input("a", published={"x": 1.0})
