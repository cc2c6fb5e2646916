"""Every kernel as the paper's models launch it, on no device: what is compiled to see that it compiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from seqmoe.core.control import control_words
from seqmoe.runtime.kernels import (
    copy_misses,
    dispatch,
    experts,
    greedy,
    land,
    lend,
    plan,
    release_layer,
    retention,
)
from seqmoe.runtime.kernels.call import Call
from seqmoe.runtime.kernels.table import DeviceTable, Misses
from seqmoe.runtime.kernels.weights import ExpertWeights, part_dtype, part_shapes
from seqmoe.runtime.retention import Offline
from seqmoe.simulate.policies.forecast import HORIZON
from seqmoe.simulate.policies.learned import FEATURES
from seqmoe.spec.errors import InputError
from seqmoe.spec.model import Model, load_model
from seqmoe.spec.paths import Home

_RESIDENCY = 0.45
_CAPACITY = 4096
_VOCABULARY = 151_936
_EXTRA_TASKS = 3
_BATCH = 8

# The format of each model's experts, their activation, and whether they have biases.
_MODELS = {
    "qwen3.6-35b-a3b-bf16": ("dense", "swiglu", False),
    "qwen3-30b-a3b-fp8": ("fp8", "swiglu", False),
    "gpt-oss-120b-mxfp4": ("mxfp4", "swiglu_oai", True),
    "deepseek-v4-flash": ("mxfp4", "swiglu_clamped", False),
}


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """A call, and for what it is compiled: the weight format with its activation, or the sizes."""

    call: Call
    of: str


def variants(home: Home) -> list[Variant]:
    """All kernels: the experts' in each model's format, the others at the sizes of the smallest and largest table."""
    models = {name: load_model(home, name) for name in _MODELS}
    found = [variant for name, model in models.items() for variant in _experts(model, *_MODELS[name])]
    small, large = models["qwen3-30b-a3b-fp8"], models["deepseek-v4-flash"]
    for model, batch in ((small, 1), (small, _BATCH), (large, _BATCH)):
        found += _slots(model, batch)
    found += _once(small)
    return list({(each.call.name, each.of): each for each in found}.values())


def _experts(model: Model, format: str, activation: str, bias: bool) -> Iterator[Variant]:
    decoding = model.decoding
    if decoding is None:
        raise InputError(f"model {model.name!r} declares no [decoding] sizes, for which experts are compiled")
    hidden, width, top_k = decoding.hidden, decoding.expert_width, model.top_k
    parts = {
        name: torch.empty((1, *shape), dtype=part_dtype(format, name, torch.bfloat16), device="meta")
        for name, shape in part_shapes(format, hidden, width, bias).items()
    }
    weights = ExpertWeights(format, hidden, width, **parts, activation=activation, limit=1.0, alpha=1.0)
    tokens = torch.empty((1, hidden), dtype=torch.bfloat16, device="meta")
    slot_ids = torch.empty((1, top_k), dtype=torch.int32, device="meta")
    top_k_weights = torch.empty((1, top_k), dtype=torch.bfloat16, device="meta")
    workspace = experts.Workspace.of(top_k, width, "meta")
    of = f"{'bf16' if format == 'dense' else format}, {activation}{', biases' if bias else ''}"
    for call in experts.calls(weights, tokens, slot_ids, top_k_weights, workspace, tokens):
        yield Variant(call, of)
    sizes = tuple(part[0].numel() * part.element_size() for part in parts.values())
    source = torch.zeros((len(sizes), model.layers * model.experts), dtype=torch.int64)
    pool = copy_misses.PoolParts(source, torch.zeros(len(sizes), dtype=torch.int64), sizes)
    table = DeviceTable.empty(model.layers, model.experts, top_k)
    yield Variant(copy_misses.call(table.progress, table, Misses.of(top_k), pool), of)


def _slots(model: Model, batch: int) -> Iterator[Variant]:
    """The kernels over the slot table."""
    slots = model.geometry.slots(_RESIDENCY, batch)
    table = DeviceTable.empty(model.layers, model.experts, slots)
    words = torch.zeros(control_words(_CAPACITY), dtype=torch.int64)
    top_k_index = torch.zeros((batch, model.top_k), dtype=torch.int64)
    slot_ids, misses = torch.zeros_like(top_k_index, dtype=torch.int32), Misses.of(top_k_index.numel())
    probability = torch.zeros((-(-model.layers // 2), model.experts))
    pool, rows = f"{slots:,} slots", f"{slots:,} slots, batch {batch}"
    choices = model.top_k + _EXTRA_TASKS
    yield Variant(land.call(words, table, _CAPACITY), "")
    yield Variant(plan.call(table, 0, top_k_index, slot_ids, misses), rows)
    yield Variant(lend.call(words, table, _CAPACITY, batch), pool)
    yield Variant(dispatch.call(words, table, _CAPACITY, probability, 0, choices), f"{model.experts} experts")
    yield Variant(release_layer.call(table, 0), f"{model.experts} experts")


def _once(model: Model) -> Iterator[Variant]:
    """The head, and the policies' scores."""
    logits = torch.empty((1, _VOCABULARY), dtype=torch.bfloat16)
    for call in greedy.calls(logits, greedy.workspace(1, _VOCABULARY), torch.zeros(1, dtype=torch.int64)):
        yield Variant(call, f"{_VOCABULARY:,} tokens")
    table = DeviceTable.empty(model.layers, model.experts, model.top_k)
    offline = Offline(np.zeros((model.layers, model.experts), dtype=np.float32), np.ones(len(FEATURES), np.float32))
    top_k_index = torch.zeros((_BATCH, model.top_k), dtype=torch.int64)
    probability = torch.zeros((HORIZON + 1, model.layers // 2, model.experts))
    for name in ("lru", "lfu", "lfu_decay", "cache_score_next", "forecast_tail", "learned"):
        policy = retention.device_retention(name, table, offline)
        for call in (*policy.used_calls(0, top_k_index), *policy.forecast_calls(0, probability)):
            yield Variant(call, name)
