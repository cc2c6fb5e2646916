"""Parameters of a model, counted on Transformers' own class without any weights: routed experts, and the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from seqmoe.adapters.base import family_of
from seqmoe.spec.errors import InputError

# Keys that models read where a configuration has them, though its class does not name them.
_ONLY_READ = ("head_dim",)


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Counts of a text model. ``unquantised`` are those outside the experts that FP8 checkpoints leave in bf16.

    ``layers`` are MoE layers; ``experts`` and ``top_k`` are a layer's. ``routed`` are the parameters of routed experts,
    ``total`` all of them. What is left unquantised is the embedding, the head, the routers and all vectors (norms).
    """

    layers: int
    experts: int
    top_k: int
    routed: int
    total: int
    unquantised: int

    @property
    def others(self) -> int:
        """Parameters outside the routed experts."""
        return self.total - self.routed

    @property
    def fp8_other_bytes(self) -> int:
        """Bytes of the others in an FP8 checkpoint, without the scales of its blocks."""
        return self.others + self.unquantised


def count_parameters(model_type: str, changes: Mapping[str, Any] | None = None) -> ParameterCounts:
    """Count on the class that Transformers has for ``model_type``, with its configuration's defaults and ``changes``.

    Nothing is allocated. An unknown key among the changes is an `InputError`, as is an unsupported family.
    """
    family = family_of(model_type)
    config = CONFIG_MAPPING[model_type]().get_text_config()
    for key in changes or {}:
        if not hasattr(config, key) and key not in _ONLY_READ:
            raise InputError(f"configuration of {model_type}: {type(config).__name__} has no {key!r}")
    config = type(config)(**(changes or {}))
    with torch.device("meta"):
        model = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config)
    routed = {id(tensor) for module in family.experts(model) for tensor in module.parameters()}  # type: ignore[attr-defined]
    kept = {id(tensor) for module in family.routers(model) for tensor in module.parameters()}
    kept |= {id(module.weight) for module in (model.get_input_embeddings(), model.get_output_embeddings()) if module}
    tensors = list(model.parameters())
    shape = family.shape(config)
    return ParameterCounts(
        layers=shape.layers,
        experts=shape.experts,
        top_k=shape.top_k,
        routed=sum(tensor.numel() for tensor in tensors if id(tensor) in routed),
        total=sum(tensor.numel() for tensor in tensors),
        unquantised=sum(t.numel() for t in tensors if id(t) not in routed and (id(t) in kept or t.ndim < 2)),
    )
