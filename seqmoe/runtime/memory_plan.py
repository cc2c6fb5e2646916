"""What a model will take of host memory, summed up and compared with what there is before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from seqmoe.adapters.base import ITEM_BYTES
from seqmoe.runtime.available_memory import Available, available_memory
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.model_class import without_experts
from seqmoe.spec.errors import OutOfMemoryError

_HINT = "choose dtype bfloat16, a smaller residency, batch or length, or host pool tier 'disk'"


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes by what they are for, and what is available."""

    parts: tuple[tuple[str, int], ...]
    available: Available

    @property
    def total(self) -> int:
        """Bytes of all parts."""
        return sum(size for _, size in self.parts)

    def __str__(self) -> str:
        """The sum in words."""
        terms = " + ".join(f"{name} {_in_words(size)}" for name, size in self.parts if size)
        return f"{terms} = {_in_words(self.total)}"

    def check(self, hint: str = _HINT) -> None:
        """Raise `OutOfMemoryError` with the sum where it exceeds what is available; ``hint`` says what to do."""
        if self.total > self.available.bytes:
            raise OutOfMemoryError(
                f"memory: {self}, but {_in_words(self.available.bytes)} are available ({self.available.source}); {hint}"
            )


def plan_memory(
    checkpoint: Checkpoint,
    tier: str,
    slots: int | None = None,
    batch: int = 1,
    tokens: int = 0,
    prompt_tokens: int = 0,
    predictor_bytes: int = 0,
) -> MemoryPlan:
    """Plan a model whose experts lie in the host pool's ``tier``, with ``slots`` in the slot pool (None: full load).

    ``tokens`` is the length of each of ``batch`` requests with its output, ``prompt_tokens`` the longest prompt. Reads
    configuration only.
    """
    geometry, config = checkpoint.geometry, checkpoint.config
    pool = geometry.total_experts * geometry.expert_bytes
    in_memory = tier != "disk" or slots is None
    # Contributions of each (token, k) of a prompt, its states before and after, and room for one temporary each.
    activations = batch * prompt_tokens * (geometry.top_k + 4) * config.hidden_size * 4
    parts = (
        ("non-experts", non_expert_bytes(checkpoint)),
        ("host pool", pool if in_memory else 0),
        ("slot pool", (slots or 0) * geometry.expert_bytes),
        ("caches", cache_bytes(config, batch, tokens, ITEM_BYTES[checkpoint.dtype])),
        ("activations", activations),
        ("predictor", predictor_bytes),
    )
    return MemoryPlan(parts, available_memory())


def non_expert_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of everything but the routed experts, from the model's shapes alone."""
    with torch.device("meta"):
        model = without_experts(checkpoint.family, checkpoint.config)(checkpoint.config)
    size = ITEM_BYTES[checkpoint.dtype]
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    return sum(parameter.numel() for parameter in model.parameters()) * size + buffers


def cache_bytes(config: Any, batch: int, tokens: int, item_bytes: int) -> int:
    """Bytes of the caches of ``batch`` requests of ``tokens`` tokens; an upper bound where a model compresses them.

    ``config`` is a text model's. Full attention keeps every token's key and value, sliding attention those of its
    window, linear attention a state of fixed size in float32.
    """
    layers = config.num_hidden_layers
    window = getattr(config, "sliding_window", None)
    if getattr(config, "use_sliding_window", True) is False:
        window = None
    kinds = getattr(config, "layer_types", None) or ["sliding_attention" if window else "full_attention"] * layers
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    total = 0
    for kind in kinds:
        if kind == "linear_attention":
            keys = config.linear_num_key_heads * config.linear_key_head_dim
            values = config.linear_num_value_heads * config.linear_value_head_dim
            total += (2 * keys + values) * config.linear_conv_kernel_dim * item_bytes
            total += values * config.linear_key_head_dim * 4
        else:
            kept = min(tokens, window) if kind == "sliding_attention" and window else tokens
            total += 2 * config.num_key_value_heads * head * kept * item_bytes
    return batch * total


def _in_words(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
