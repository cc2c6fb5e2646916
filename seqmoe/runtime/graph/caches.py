"""Caches that a compiled step can take: their whole state is tensors, written in place."""

from __future__ import annotations

from typing import Any

import torch
from transformers import StaticCache
from transformers.cache_utils import LinearAttentionLayer, StaticLayer, StaticSlidingWindowLayer

from seqmoe.spec.errors import InputError


def static_cache(config: Any, length: int) -> StaticCache:
    """A cache for ``length`` tokens at fixed addresses.

    Layers with sliding windows get room for all of them: Transformers' window layer counts tokens in Python, which
    compiled code would not see, and the mask keeps the window anyway. Raises `InputError` for a family whose layers
    keep anything else than keys, values and recurrent states.
    """
    try:
        cache = StaticCache(config=config, max_cache_len=length)
    except KeyError as kind:
        raise _refusal(config, str(kind)) from None
    for number, layer in enumerate(cache.layers):
        if type(layer) is StaticSlidingWindowLayer:
            cache.layers[number] = StaticLayer(max_cache_len=length)
        elif type(layer) not in (StaticLayer, LinearAttentionLayer):
            raise _refusal(config, type(layer).__name__)
    return cache


def _refusal(config: Any, kind: str) -> InputError:
    return InputError(
        f"execution 'graph' on a CPU cannot compile model_type {config.model_type!r}: what its layers of {kind} keep "
        "grows from token to token; use execution 'sync'"
    )


def state_of(cache: Any) -> list[tuple[dict[Any, Any], Any]]:
    """Where a filled cache keeps its tensors: (dictionary, key) of each, in a fixed order."""
    places: list[tuple[dict[Any, Any], Any]] = []
    for layer in cache.layers:
        attributes = vars(layer)
        for owner in (attributes, *(value for value in attributes.values() if isinstance(value, dict))):
            places += [(owner, key) for key, value in owner.items() if isinstance(value, torch.Tensor)]
    return places
