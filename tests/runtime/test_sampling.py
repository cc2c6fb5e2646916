"""Protects sampling: seeds repeat, frequencies are the distribution's, the nucleus is the smallest that reaches p."""

from __future__ import annotations

import pytest
import torch

from seqmoe.runtime.sampling import Sampler, Sampling

LOGITS = torch.tensor([0.5, 2.0, -1.0, 1.0, 0.0])


def _draw(sampling, count=4000):
    sampler = Sampler(sampling, [])
    return torch.bincount(torch.tensor([sampler.choose(LOGITS) for _ in range(count)]), minlength=5) / count


def test_frequencies_are_those_of_the_softmax():
    for temperature in (0.5, 1.0, 2.0):
        expected = (LOGITS / temperature).softmax(-1)
        assert (_draw(Sampling(temperature, seed=1)) - expected).abs().max() < 0.03


def test_no_temperature_is_too_small_to_divide_by():
    for top_p in (1.0, 0.5, 1e-320):
        assert _draw(Sampling(5e-324, top_p, seed=1), 5)[1] == 1


def test_the_nucleus_is_the_smallest_set_that_reaches_top_p():
    chance = LOGITS.softmax(-1)  # in order: tokens 1, 3, 0, 4, 2
    inside = chance[1] + chance[3]
    found = _draw(Sampling(1.0, float(inside) + 1e-3, seed=1))
    assert (found > 0).tolist() == [True, True, False, True, False]
    found = _draw(Sampling(1.0, float(inside) - 1e-3, seed=1))
    assert (found > 0).tolist() == [False, True, False, True, False]
    assert found[1] == pytest.approx(float(chance[1] / inside), abs=0.03)
    assert _draw(Sampling(1.0, 1e-6, seed=1), 50)[1] == 1


def test_a_seed_repeats_and_none_does_not():
    def draw(seed):
        sampler = Sampler(Sampling(2.0, seed=seed), [])
        return [sampler.choose(LOGITS) for _ in range(64)]

    assert draw(5) == draw(5) != draw(6)
    assert draw(-1) == draw(-1)
    assert draw(None) != draw(None)


def test_ties_go_to_the_first_and_greedy_needs_no_chance():
    logits = torch.zeros(4)
    assert Sampler(Sampling(), []).choose(logits) == 0
    assert Sampler(Sampling(ignore_end=True), [0]).choose(logits) == 1


def test_an_end_that_is_ignored_is_never_drawn():
    sampler = Sampler(Sampling(2.0, seed=0, ignore_end=True), [1])
    assert 1 not in [sampler.choose(LOGITS) for _ in range(200)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"seed": 2**63}, "seed"),
    ],
)
def test_values_out_of_range_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**values)
