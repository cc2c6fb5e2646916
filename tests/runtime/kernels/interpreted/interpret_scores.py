"""Protects the scores that the device keeps: after every event they are those of the host's twin of the same policy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqmoe.core.control import POSITION
from seqmoe.runtime.kernels.retention import LeastFrequent, device_retention
from seqmoe.runtime.kernels.table import DeviceTable
from seqmoe.runtime.retention import Offline
from seqmoe.runtime.retention_kinds import KINDS, retention_of
from seqmoe.simulate.policies.learned import FEATURES

LAYERS, EXPERTS, CHOICES = 4, 9, 3
RANGES = ((0, 2), (2, 4))


def offline():
    random = np.random.default_rng(5)
    weights = random.normal(size=len(FEATURES)).astype(np.float32)
    return Offline(popularity=random.random((LAYERS, EXPERTS)).astype(np.float32), weights=np.abs(weights))


def decode(random, device, twin, first, last, rows):
    """Steps ``first`` to ``last`` of both, compared after every event and forecast."""
    for step in range(first, last):
        device.before_step(step)
        for layer in range(LAYERS):
            device.table.progress[POSITION] = step * LAYERS + layer
            chosen = np.stack([random.permutation(EXPERTS)[:CHOICES] for _ in range(2)])
            device.used(layer, torch.from_numpy(chosen))
            twin.used(layer, step, np.unique(chosen).astype(np.int32))
            compare(device, twin)
            for begin, end in RANGES:
                if layer == end - 1:
                    chance = (random.random((rows, end - begin, EXPERTS)) ** 3).astype(np.float32)
                    device.forecast(begin, torch.from_numpy(chance))
                    twin.forecast(step, begin, end, chance)
                    compare(device, twin)


def compare(device, twin):
    np.testing.assert_allclose(device.table.score.numpy(), twin.score, rtol=2e-6, atol=2e-6)


BY_FORECAST = ("cache_score", "cache_score_next", "forecast_tail", "learned")


@pytest.mark.parametrize(
    ("name", "rows"), [(name, 9) for name in KINDS] + [(name, rows) for name in BY_FORECAST for rows in (1, 3)]
)
def test_scores_are_those_of_the_host(name, rows):
    random = np.random.default_rng(len(name))
    table = DeviceTable.empty(LAYERS, EXPERTS, 10)
    device = device_retention(name, table, offline())
    twin = retention_of(name, np.full((LAYERS, EXPERTS), 3, dtype=np.float32), offline())
    table.score.copy_(torch.from_numpy(twin.score))
    step = 0
    for length in (4, 3):
        for each in (device, twin):
            each.begin_request(step)
        compare(device, twin)
        decode(random, device, twin, step, step + length, rows)
        step += length


def test_frequencies_outlive_their_bits():
    random = np.random.default_rng(1)
    table = DeviceTable.empty(LAYERS, EXPERTS, 10)
    device = device_retention("lfu", table, Offline())
    assert isinstance(device, LeastFrequent)
    device.begin_request(0)
    end = (1 << 17) // LAYERS
    reference = {}
    for step in [0, 1, end - 1, end, end + 1]:
        device.before_step(step)
        for layer in range(LAYERS):
            table.progress[POSITION] = step * LAYERS + layer
            chosen = random.permutation(EXPERTS)[:CHOICES]
            device.used(layer, torch.from_numpy(chosen)[None])
            for expert in chosen.tolist():
                count, _ = reference.get((layer, expert), (0, 0))
                reference[layer, expert] = count + 1, step * LAYERS + layer
    by_score = sorted(reference, key=lambda expert: float(table.score[expert]))
    assert by_score == sorted(reference, key=lambda expert: reference[expert])
