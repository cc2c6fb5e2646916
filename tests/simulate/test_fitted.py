"""Protects fitted policies: never judged on what they were fitted to, never fitted to nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from replay_samples import Noise, traces

from seqmoe.simulate.fitted import check_fitted
from seqmoe.simulate.replay import replay_traces
from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import MISSING
from seqmoe.traces.store import open_store, write_store


def named(dataset, first, seed, count=3):
    """Other content, the same names."""
    plain = traces(seed=seed, count=count)
    requests = (replace(r, dataset=dataset, identifier=f"{first + i}") for i, r in enumerate(plain.requests))
    return replace(plain, requests=tuple(requests))


def missing(request):
    return replace(request, experts=np.full_like(request.experts, MISSING))


def one_step(request):
    return replace(request, experts=request.experts[:1], phase=request.phase[:1])


@pytest.mark.parametrize("policy", ["popularity", "learned", "seqmoe_learned+edf"])
def test_the_replayed_traces_are_refused(policy, tmp_path) -> None:
    tiny = traces()
    write_store(tiny, tmp_path / "t")
    part = replace(traces(seed=1), requests=(*traces(seed=1).requests, tiny.requests[1]))
    for same, count in ((tiny, 3), (open_store(tmp_path / "t"), 3), (part, 1)):
        with pytest.raises(
            InputError, match=rf"--fit: {count} of the 3 replayed sequences are among them.*trace split"
        ):
            replay_traces(tiny, [policy], [0.5], predictor=Noise(), fitted_on=same)
    assert replay_traces(tiny, ["lru"], [0.5], fitted_on=tiny)  # nothing is fitted


def test_sequences_are_known_by_their_names_within_a_data_set() -> None:
    with pytest.raises(InputError, match="1 of the 3 replayed sequences"):
        check_fitted(named("math", 2, seed=1), named("math", 0, seed=0))
    check_fitted(named("gsm8k", 0, seed=1), named("math", 0, seed=0))
    check_fitted(named("", 0, seed=1), named("", 0, seed=0))  # files of a foreign format all count from 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: replace(t, requests=()), "none of the 0 sequences has 2 steps"),
        (lambda t: replace(t, requests=tuple(missing(r) for r in t.requests)), "none of the 3 sequences has 2 steps"),
        (lambda t: replace(t, requests=tuple(one_step(r) for r in t.requests)), "none of the 3 sequences has 2 steps"),
        (lambda t: replace(t, top_k=1, requests=tuple(replace(r, experts=r.experts[..., :1]) for r in t.requests)),
         "3 layers of 6 experts, top-1, but those of tiny have 3 of 6, top-2"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_to_is_refused(change, message) -> None:
    with pytest.raises(InputError, match=message):
        replay_traces(traces(), ["learned"], [0.5], predictor=Noise(), fitted_on=change(traces(seed=1)))
