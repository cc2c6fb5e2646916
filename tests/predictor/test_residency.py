"""Protects what counts as a miss: one pass of distances gives the hits of the replay, at every size of the pool."""

from __future__ import annotations

import numpy as np
import pytest
from predictor_samples import random_request

from seqmoe.core.simulate import replay
from seqmoe.predictor.residency import NEVER, reuse_distances
from seqmoe.simulate.batch import events_of
from seqmoe.spec.trace import MISSING


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(3))
def test_the_same_hits_as_the_replay_event_by_event(seed, missing):
    request = random_request(np.random.default_rng(seed), 40, layers=3, experts=7, k=2, missing=missing)
    distances = reuse_distances(request.experts, 7)
    present = request.experts != MISSING
    events = events_of(request)
    by_event = distances[present].reshape(-1, 2)
    for slots in range(2, 22):
        arguments = (3, 7, slots, events.layer, events.start, events.expert)
        counted = [replay(*arguments, first, "lru").hits for first in range(len(events.layer) + 1)]
        assert ((by_event < slots).sum(1) == -np.diff(counted)).all()


def test_by_hand():
    experts = np.array([[[0, 1]], [[2, 3]], [[0, 2]], [[MISSING, MISSING]], [[3, 1]]], dtype=np.int16)
    distances = reuse_distances(experts, 4)[:, 0]
    assert (distances[[0, 1, 3]] == NEVER).all()
    # Before step 2 the order is 3, 2, 1, 0: of one event, the higher key stays longer.
    assert distances[2].tolist() == [3, 1]
    # Before step 4: 2, 0, 3, 1.
    assert distances[4].tolist() == [2, 3]
