"""Protects the layers of a compiled step: bit-equal to pipeline, kernel and reduction called one by one."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from seqmoe.core.budget import TransferBudget
from seqmoe.core.link import Link
from seqmoe.core.moe import moe_experts, reduce_contributions
from seqmoe.core.pipeline import OffloadPipeline
from seqmoe.core.slots import SlotTable
from seqmoe.core.step import DecodeStep

LAYERS, EXPERTS, CHOICES, HIDDEN, WIDTH = 3, 9, 4, 24, 20
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 4)


class Weights:
    """A host pool, and a slot pool behind a pipeline if ``slots`` are given."""

    def __init__(self, slots=None):
        rng = np.random.default_rng(3)
        shapes = ((LAYERS * EXPERTS, 2 * WIDTH, HIDDEN), (LAYERS * EXPERTS, HIDDEN, WIDTH))
        self.host = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
        self.pool, self.pipeline = self.host, None
        if slots is not None:
            self.pool = [np.zeros((slots, *shape[1:]), dtype=np.float32) for shape in shapes]
            parts = [(a.ctypes.data, b.ctypes.data, a[0].nbytes) for a, b in zip(self.host, self.pool, strict=True)]
            table = SlotTable(LAYERS, EXPERTS, slots, 0)
            self.pipeline = OffloadPipeline(table, Link(parts), TransferBudget(1.0))

    def step(self, tokens):
        return DecodeStep(LAYERS, EXPERTS, tokens, CHOICES, *self.pool, self.pipeline)


def inputs(tokens, seed):
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((LAYERS, tokens, HIDDEN), dtype=np.float32)
    index = np.stack([rng.permuted(np.arange(EXPERTS)[None].repeat(tokens, 0), axis=1) for _ in range(LAYERS)])
    return hidden, index[:, :, :CHOICES].copy(), rng.random((LAYERS, tokens, CHOICES), dtype=np.float32)


def call(step, layer, hidden, index, weights):
    function, self = step.address
    out = np.full_like(hidden, np.nan)
    arrays = [array.ctypes.data for array in (hidden, np.ascontiguousarray(index, np.int64), weights, out)]
    FUNCTION(function)(self, layer, *arrays)
    return out


def plain(weights, layer, hidden, index, routing):
    contribution = np.empty((*index.shape, HIDDEN), dtype=np.float32)
    slots = (index + layer * EXPERTS).astype(np.int32)
    moe_experts(hidden, *weights.host, slots, routing, contribution)
    out = np.empty_like(hidden)
    reduce_contributions(contribution, out)
    return out


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("slots", [None, CHOICES, 11])
def test_layers_are_bit_equal_to_the_kernel(tokens, slots):
    weights = Weights(slots)
    step = weights.step(tokens)
    for number in range(4):
        hidden, index, routing = inputs(tokens, number)
        step.begin(number * LAYERS)
        for layer in range(LAYERS):
            out = call(step, layer, hidden[layer], index[layer], routing[layer])
            assert np.array_equal(out, plain(weights, layer, hidden[layer], index[layer], routing[layer]))
        step.finish()
        assert np.array_equal(step.experts, index)
        assert np.array_equal(step.weights, routing)
        assert step.placing_ns > 0
    if slots is not None:
        counts = weights.pipeline.statistics()
        assert counts["needed"] == counts["hits"] + counts["misses"]
        assert counts["events"] >= 4 * LAYERS
        weights.pipeline.stop()


def test_hooks_are_called_in_the_order_of_the_pipeline():
    weights = Weights(11)
    step = weights.step(1)
    hidden, index, routing = inputs(1, 0)
    seen = []
    step.begin(
        0,
        needed=lambda layer: seen.append(("needed", layer, sorted(step.distinct().tolist()))),
        routed=lambda layer: seen.append(("routed", layer, step.experts[layer].ravel().tolist())),
        done=lambda layer: seen.append(("done", layer, None)),
        triggers=[1],
    )
    for layer in range(LAYERS):
        call(step, layer, hidden[layer], index[layer], routing[layer])
    step.finish()
    needed = [("needed", layer, sorted(index[layer, 0].tolist())) for layer in range(LAYERS)]
    done = [("done", layer, None) for layer in range(LAYERS)]
    routed = ("routed", 1, index[1, 0].tolist())
    assert seen == [needed[0], done[0], needed[1], routed, done[1], needed[2], done[2]]
    weights.pipeline.stop()


def test_a_failure_is_raised_at_the_end_and_the_layers_after_it_are_zero():
    step = Weights().step(1)
    hidden, index, routing = inputs(1, 0)
    step.begin(0, done=lambda layer: 1 // 0)
    for layer in range(LAYERS):
        out = call(step, layer, hidden[layer], index[layer], routing[layer])
    assert not out.any()
    with pytest.raises(ZeroDivisionError):
        step.finish()


def test_what_the_compiled_code_must_not_do_is_an_error():
    step = Weights().step(1)
    hidden, index, routing = inputs(1, 0)
    step.begin(0)
    call(step, 1, hidden[1], index[1], routing[1])
    with pytest.raises(RuntimeError, match="MoE layer 1 where layer 0"):
        step.finish()
    step.begin(0)
    call(step, 0, hidden[0], index[0], routing[0])
    with pytest.raises(RuntimeError, match="passed 1 of 3"):
        step.finish()
    step.begin(0)
    call(step, 0, hidden[0], index[0] + EXPERTS, routing[0])
    with pytest.raises(IndexError, match="of 9"):
        step.finish()


def test_sizes_that_do_not_fit_are_refused():
    gate_up, down = Weights().host
    with pytest.raises(ValueError, match="every expert"):
        DecodeStep(LAYERS + 1, EXPERTS, 1, CHOICES, gate_up, down, None)
    with pytest.raises(ValueError, match="gate_up must be"):
        DecodeStep(LAYERS, EXPERTS, 1, CHOICES, gate_up[:, :-1].copy(), down, None)
    with pytest.raises(ValueError, match="choices"):
        DecodeStep(LAYERS, EXPERTS, 1, EXPERTS + 1, gate_up, down, None)
