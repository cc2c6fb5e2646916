"""The decode step of a model as one graph: token and position in, logits out, the cache changed in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers.cache_utils import StaticLayer

from seqmoe.adapters.base import ExpertsModule
from seqmoe.runtime.graph.caches import state_of, static_cache
from seqmoe.runtime.graph.experts_op import NAME, Target
from seqmoe.runtime.offload import NAME as OUTSIDE
from seqmoe.spec.errors import InputError

_SAMPLE_LENGTH = 40  # of the cache that is traced with; any other length is taken as well


class _Step(torch.nn.Module):
    """The model with its cache's tensors as inputs, put in place while the model runs."""

    def __init__(self, model: Any, cache: Any, target: Target) -> None:
        super().__init__()
        self.model = model
        self._cache = [cache]  # in a list, for export would refuse to see an attribute change
        self._places = state_of(cache)
        self._target = target

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        target: torch.Tensor,
        state: list[torch.Tensor],
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        (cache,) = self._cache
        before = [owner[key] for owner, key in self._places]
        lengths = [layer.max_cache_len for layer in cache.layers if isinstance(layer, StaticLayer)]
        for (owner, key), tensor in zip(self._places, state, strict=True):
            owner[key] = tensor
        for layer in cache.layers:
            if isinstance(layer, StaticLayer):
                layer.max_cache_len = layer.keys.shape[2]
        self._target.tensor = target
        try:
            logits: torch.Tensor = self.model(
                input_ids=ids,
                position_ids=positions,
                attention_mask=mask,
                cache=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            for (owner, key), tensor in zip(self._places, state, strict=True):
                if owner[key] is not tensor:
                    tensor.copy_(owner[key])
        finally:
            for (owner, key), tensor in zip(self._places, before, strict=True):
                owner[key] = tensor
            statics = (layer for layer in cache.layers if isinstance(layer, StaticLayer))
            for layer, length in zip(statics, lengths, strict=True):
                layer.max_cache_len = length
        return logits


@torch.no_grad()
def export_step(model: Any, experts: Sequence[ExpertsModule], batch: int) -> torch.export.ExportedProgram:
    """Trace ``forward(ids [batch, 1], positions [batch, 1], target [2], state, mask) -> logits [batch, vocabulary]``.

    ``state`` is the tensors of `state_of` a cache from `static_cache`, of any length. ``mask`` int64 [batch, length] is
    0 where a shorter prompt was padded; a batch of one has none. Raises `InputError`, naming the family, for a model
    that cannot be traced.
    """
    target = Target()
    target.tensor = torch.zeros(2, dtype=torch.int64)
    cache = static_cache(model.config, _SAMPLE_LENGTH)
    with _experts_of(model, experts, target):
        model(input_ids=torch.ones((batch, 2), dtype=torch.int64), cache=cache, use_cache=True, logits_to_keep=1)
        step = _Step(model, cache, target)
        state = [owner[key] for owner, key in state_of(cache)]
        length = torch.export.Dim("length", min=2, max=int(model.config.max_position_embeddings))
        grows = [{2: length} if key in ("keys", "values") else None for _, key in state_of(cache)]
        token = torch.full((batch, 1), 2)
        mask = torch.ones((batch, _SAMPLE_LENGTH), dtype=torch.int64) if batch > 1 else None
        try:
            return torch.export.export(
                step,
                (token, token.clone(), target.tensor, state, mask),
                dynamic_shapes=(None, None, None, grows, {1: length} if batch > 1 else None),
                strict=False,
            )
        except (RuntimeError, TypeError, torch._dynamo.exc.TorchDynamoException) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"execution 'graph' on a CPU cannot compile model_type {model.config.model_type!r}: {reason}; use "
                "execution 'sync'"
            ) from error


@contextmanager
def _experts_of(model: Any, experts: Sequence[ExpertsModule], target: Target) -> Iterator[None]:
    for module in experts:
        module.seqmoe_target = target  # type: ignore[attr-defined]
    model.set_experts_implementation(NAME)
    try:
        yield
    finally:
        model.set_experts_implementation(OUTSIDE)
        for module in experts:
            del module.seqmoe_target  # type: ignore[attr-defined]
