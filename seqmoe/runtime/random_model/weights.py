"""Random numbers in the place of weights, everywhere that a checkpoint would have put some."""

from __future__ import annotations

from typing import Any

import torch

from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.loading import Loaded
from seqmoe.runtime.memory_plan import plan_memory
from seqmoe.runtime.model_class import without_experts
from seqmoe.runtime.offload import NAME
from seqmoe.runtime.placement import ExpertPool

_SEED = 0


def load_random(checkpoint: Checkpoint) -> Loaded:
    """The model, and every one of its experts in pageable memory; the same numbers at every call.

    Raises `OutOfMemoryError` for a model that cannot fit even without slots and caches.
    """
    plan_memory(checkpoint, "pageable", slots=0).check()
    host = ExpertPool.empty(checkpoint.geometry.total_experts, checkpoint.format)
    fill_experts(host.tensors, checkpoint.config.initializer_range)
    model = random_non_experts(checkpoint)
    return Loaded(model, checkpoint.family.experts(model), host)


def fill_experts(parts: dict[str, torch.Tensor], deviation: float) -> None:
    """Fill float tensors [experts, ...] with normal numbers of that standard ``deviation``; no two experts are alike.

    One expert's numbers are drawn; expert i has them from number i on, since drawing gigabytes takes minutes.
    """
    generator = torch.Generator().manual_seed(_SEED)
    for tensor in parts.values():
        drawn = torch.empty(tensor[0].numel() + len(tensor)).normal_(0.0, deviation, generator=generator)
        lay_out(tensor, drawn.to(tensor.dtype))


def lay_out(experts: torch.Tensor, drawn: torch.Tensor, first: int = 0) -> None:
    """Give expert i of [n, ...] the numbers of ``drawn`` [m] from number ``first`` + i on."""
    size = experts[0].numel()
    for number, expert in enumerate(experts, start=first):
        expert.view(-1).copy_(drawn[number : number + size])


def random_non_experts(checkpoint: Checkpoint) -> Any:
    """Transformers' model without routed experts, initialised as Transformers initialises a new one."""
    kind: Any = without_experts(checkpoint.family, checkpoint.config)
    with torch.device("meta"):
        model = kind._from_config(checkpoint.config, dtype=checkpoint.format.torch_dtype, experts_implementation=NAME)
    model.to_empty(device="cpu")
    experts = set(map(id, checkpoint.family.experts(model)))
    for module in model.modules():
        module._is_hf_initialized = id(module) in experts
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        model.init_weights()
    model.tie_weights()
    model.__class__ = kind.__mro__[1]
    return model.eval()
