"""From a declaration to the configuration of a model that is not loaded from anywhere."""

from __future__ import annotations

from typing import Any

from transformers import CONFIG_MAPPING, AutoConfig

from seqmoe.adapters.base import ExpertFormat, family_of
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.spec.errors import InputError
from seqmoe.spec.model import Model

# Bytes of a weight by the declared format. FP8's scales of 128 x 128 blocks are not declared; MXFP4 has 8 bits for 32.
_WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "mxfp4": 0.5 + 1 / 32}
# Declared bytes may round, or leave out the scales of blocks.
_TOLERANCE = 0.005


def random_checkpoint(model: Model, top_k: int, layers: int = 0, dtype: str = "bfloat16") -> Checkpoint:
    """What a checkpoint of ``model`` would say, cut down to its first ``layers`` layers (0: all), without tokenizer.

    ``top_k`` are the experts per token of the routing that will be replayed. ``dtype`` is that of all weights: the
    kernels of a CPU compute float32 and bfloat16, so quantised formats are held in one of them there, which takes more
    bytes than declared. Raises `InputError` for a declaration that the family's class does not have the sizes of.
    """
    config = _configuration(model)
    cut = model.shortened(layers)
    if cut.layers != model.layers:
        config = _first_layers(config, cut.layers)
    family = family_of(config.model_type)
    config.num_experts_per_tok = top_k
    found = family.geometry(config, dtype)
    if (found.layers, found.experts) != (cut.layers, model.experts):
        raise InputError(
            f"model {model.name!r}: its class has {found.layers} layers of {found.experts} experts, declared are "
            f"{cut.layers} of {model.experts}; give [configuration] what differs from the class's defaults"
        )
    size = stored_bytes(family.expert_format(config, dtype), model.format)
    if abs(size - model.expert_bytes) > _TOLERANCE * model.expert_bytes:
        raise InputError(
            f"model {model.name!r}: an expert of its class has {size:.0f} bytes in {model.format}, declared are "
            f"{model.expert_bytes}; give [configuration] what differs from the class's defaults"
        )
    return Checkpoint(f"{model.name} with random weights", config, None, family, dtype)


def stored_bytes(format: ExpertFormat, stored: str) -> float:
    """Bytes of one expert as a checkpoint of format ``stored`` (bf16, fp8, mxfp4) has it; biases are bf16."""
    weights = 3 * format.hidden * format.width
    biases = 2 * format.width + format.hidden if format.bias else 0
    return weights * _WEIGHT_BYTES[stored] + 2 * biases


def _configuration(model: Model) -> Any:
    """The text model's configuration: of the folder that the declaration names, or the class's with its changes."""
    if model.path:
        return AutoConfig.from_pretrained(model.location).get_text_config()
    default = CONFIG_MAPPING[model.family]().get_text_config()
    return type(default)(**model.configuration)


def _first_layers(config: Any, layers: int) -> Any:
    """The same configuration with fewer layers; what it lists for every layer is cut as well."""
    table = config.to_dict()
    for key, value in table.items():
        if isinstance(value, list) and len(value) == config.num_hidden_layers:
            table[key] = value[:layers]
    return type(config)(**table | {"num_hidden_layers": layers})
