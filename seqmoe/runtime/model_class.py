"""Transformers' model classes without the experts, whose weights the runtime keeps itself."""

from __future__ import annotations

from typing import Any

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from seqmoe.adapters.base import Family


def without_experts(family: Family, config: Any) -> type:
    """Transformers' model class of a text configuration, built without the parameters of its routed experts."""
    original = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]

    def initialise(self: Any, config: Any) -> None:
        original.__init__(self, config)
        for module in family.experts(self):
            for name, _ in list(module.named_parameters(recurse=False)):  # type: ignore[attr-defined]
                delattr(module, name)
            module._is_hf_initialized = True  # type: ignore[attr-defined]

    ignored = [*(original._keys_to_ignore_on_load_unexpected or ()), r"\.experts\."]
    body = {
        "__init__": initialise,
        "__module__": original.__module__,
        "_keys_to_ignore_on_load_unexpected": ignored,
    }
    return type(original.__name__, (original,), body)
