"""A checkpoint before its weights are loaded: configuration, tokenizer, and the questions they can answer."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from seqmoe.adapters.base import Family, family_of
from seqmoe.runtime.offload import NAME
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A Hugging Face checkpoint folder or hub id of a supported family."""

    source: str
    config: Any
    tokenizer: Any
    family: Family

    @staticmethod
    def open(source: Path | str) -> Checkpoint:
        """Read configuration and tokenizer.

        Raises `InputError` for a path that does not exist, or a model family that the runtime does not know.
        """
        try:
            config = AutoConfig.from_pretrained(source)
            family = family_of(config.model_type)
            family.geometry(config)
            tokenizer = AutoTokenizer.from_pretrained(source)
        except InputError:
            raise
        except (OSError, ValueError) as error:
            raise _unreadable(source, error) from None
        if not tokenizer.vocab_size:
            raise InputError(f"model {str(source)!r}: has no tokenizer; copy its tokenizer.json beside config.json")
        return Checkpoint(str(source), config, tokenizer, family)

    @property
    def geometry(self) -> Geometry:
        """Shape of the model's MoE layers."""
        return self.family.geometry(self.config)

    def check_lengths(self, prompt: list[int], tokens: int) -> None:
        """Raise ``ValueError`` for a prompt without tokens, or one that does not fit the context with its output."""
        context = int(self.config.max_position_embeddings)
        if not prompt:
            raise ValueError("the prompt has no tokens; give at least one character")
        if tokens < 1:
            raise ValueError(f"tokens = {tokens}: must be at least 1")
        if len(prompt) + tokens > context:
            raise ValueError(f"{len(prompt)} prompt tokens + {tokens} new ones exceed the model's context of {context}")

    def load_model(self) -> Any:
        """The model in float32, its experts to be computed by the ``seqmoe`` function."""
        if not sys.stderr.isatty():
            transformers_logging.disable_progress_bar()
        try:
            model = AutoModelForCausalLM.from_pretrained(self.source, dtype=torch.float32, experts_implementation=NAME)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise _unreadable(self.source, error) from None
        return model.eval()


def _unreadable(source: Path | str, error: Exception) -> InputError:
    return InputError(f"model {str(source)!r}: cannot be loaded: {str(error).strip().splitlines()[0]}")
