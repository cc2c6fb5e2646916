"""Protects what a prediction study may declare: what cannot be trained is refused before anything is."""

from __future__ import annotations

import math

import pytest

from seqmoe.spec.prediction import Block, Options, PredictionCell


@pytest.mark.parametrize("minutes", [math.nan, math.inf, -1.0, 1e9])
def test_a_budget_that_never_ends_is_refused(minutes) -> None:
    for given in ({"minutes": minutes}, {"minutes": 1.0, "minutes_given_traces": minutes}):
        with pytest.raises(ValueError, match=r"minutes.* must lie in 0\.\.1e\+06"):
            Block("a", ("mamba2",), **given)
    with pytest.raises(ValueError, match="minutes = "):
        PredictionCell("s", "a", "mamba2", "x", minutes=minutes)


@pytest.mark.parametrize("hidden", [-64, 0, 7, 96, 190, 8256])
def test_a_width_that_does_not_divide_into_heads_is_refused(hidden) -> None:
    with pytest.raises(ValueError, match=f"hidden = {hidden}: must be"):
        Options(hidden=hidden)
