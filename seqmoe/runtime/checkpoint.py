"""A checkpoint before its weights are loaded: configuration, tokenizer, and the questions they can answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer

from seqmoe.adapters.base import ExpertFormat, Family, family_of
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.hub import quiet_attempts


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A Hugging Face checkpoint folder or hub id of a supported family, to be loaded in ``dtype``.

    ``config`` is the text model's own, also where the checkpoint's is a composite one.
    """

    source: str
    config: Any
    tokenizer: Any
    family: Family
    dtype: str = "float32"

    @staticmethod
    def open(source: Path | str, dtype: str = "float32") -> Checkpoint:
        """Read configuration and tokenizer; ``dtype`` is "float32", "bfloat16" or "auto", the checkpoint's own.

        Raises `InputError` for a path that does not exist, a model family that the runtime does not know, or another
        type.
        """
        try:
            with quiet_attempts():
                whole = AutoConfig.from_pretrained(source)
            family = family_of(whole.model_type)
            config = whole.get_text_config()
            _unquantise(source, whole, family)
            dtype = _stored_dtype(whole, config) if dtype == "auto" else dtype
            family.expert_format(config, dtype)
            with quiet_attempts():
                tokenizer = AutoTokenizer.from_pretrained(source)
        except InputError:
            raise
        except (OSError, ValueError) as error:
            raise unreadable(source, error) from None
        if not tokenizer.vocab_size:
            raise InputError(f"model {str(source)!r}: has no tokenizer; copy its tokenizer.json beside config.json")
        return Checkpoint(str(source), config, tokenizer, family, dtype)

    @property
    def geometry(self) -> Geometry:
        """Shape of the model's MoE layers."""
        return self.family.geometry(self.config, self.dtype)

    @property
    def format(self) -> ExpertFormat:
        """What the expert pools hold."""
        return self.family.expert_format(self.config, self.dtype)

    @property
    def context(self) -> int:
        """The most tokens of a sequence."""
        return int(self.config.max_position_embeddings)

    def check_lengths(self, prompt: list[int], tokens: int) -> None:
        """Raise ``ValueError`` for a prompt without tokens, or one that does not fit the context with its output."""
        context = self.context
        if not prompt:
            raise ValueError("the prompt has no tokens; give at least one character")
        if tokens < 1:
            raise ValueError(f"tokens = {tokens}: must be at least 1")
        if len(prompt) + tokens > context:
            raise ValueError(f"{len(prompt)} prompt tokens + {tokens} new ones exceed the model's context of {context}")


def _stored_dtype(whole: Any, config: Any) -> str:
    """The checkpoint's own type; a composite configuration may state it for the whole or for the text model."""
    dtype = config.dtype if config.dtype is not None else whole.dtype
    return "float32" if dtype is None else str(dtype).removeprefix("torch.")


def _unquantise(source: Path | str, config: Any, family: Family) -> None:
    """Take the quantisation out of a configuration whose experts are unpacked at loading; refuse any other."""
    quantisation = getattr(config, "quantization_config", None)
    if not quantisation:
        return
    method = quantisation["quant_method"] if isinstance(quantisation, dict) else quantisation.quant_method
    if str(method) not in family.quantisations:
        also = "".join(f", or {name} experts" for name in family.quantisations)
        raise InputError(
            f"model {str(source)!r}: its weights are quantised (quant_method {str(method)!r}); the runtime computes "
            f"with float32 and bfloat16, so give a checkpoint in float32, bfloat16 or float16{also}"
        )
    del config.quantization_config


def unreadable(source: Path | str, error: Exception) -> InputError:
    """The error for a checkpoint that a library could not read, with the library's own first line."""
    return InputError(f"model {str(source)!r}: cannot be loaded: {str(error).strip().splitlines()[0]}")
