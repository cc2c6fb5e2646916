"""The model whose routing is collected: configuration and tokenizer first, weights only when they are needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from seqmoe.adapters.base import Family, family_of
from seqmoe.spec.errors import InputError
from seqmoe.spec.hub import quiet_attempts
from seqmoe.traces.collect.request import CollectOptions, Prompt, Request, identifiers, request_seed


@dataclass(frozen=True, slots=True)
class TracedModel:
    """A Hugging Face checkpoint folder or hub id of a supported family."""

    location: str
    config: Any
    tokenizer: Any
    family: Family

    @staticmethod
    def open(location: str) -> TracedModel:
        """Read configuration and tokenizer. Raises `InputError` for what cannot be read, or an unknown family."""
        try:
            with quiet_attempts():
                config = AutoConfig.from_pretrained(location)
            family = family_of(config.model_type)
            with quiet_attempts():
                tokenizer = AutoTokenizer.from_pretrained(location)
        except InputError:
            raise
        except (OSError, ValueError) as error:
            raise _unreadable(location, error) from None
        return TracedModel(location, config.get_text_config(), tokenizer, family)

    def load(self, device: torch.device) -> Any:
        """The model on ``device``: float32 on a CPU, in the checkpoint's own type elsewhere."""
        if not sys.stderr.isatty():
            transformers_logging.disable_progress_bar()
        dtype = torch.float32 if device.type == "cpu" else "auto"
        try:
            with quiet_attempts():
                model = AutoModelForCausalLM.from_pretrained(self.location, dtype=dtype)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise _unreadable(self.location, error) from None
        return model.to(device).eval()

    def plan(self, prompts: Sequence[Prompt], options: CollectOptions) -> tuple[list[Request], list[str]]:
        """All requests in order, and the identifiers of prompts that leave no room for their output in the context."""
        context = int(self.config.max_position_embeddings)
        encoded = {prompt.identifier: self._encode(prompt, options.chat) for prompt in prompts}
        requests, skipped = [], []
        for prompt, identifier in identifiers(prompts, options.samples):
            ids = encoded[prompt.identifier]
            if len(ids) + options.tokens > context:
                skipped.append(prompt.identifier)
                continue
            requests.append(
                Request(identifier, prompt.identifier, prompt.dataset, ids, request_seed(options.seed, identifier))
            )
        if not requests:
            raise InputError(f"tokens = {options.tokens}: no prompt fits the model's context of {context} with it")
        return requests, list(dict.fromkeys(skipped))

    def end_tokens(self) -> tuple[int, ...]:
        """Ids that end a sequence: of the configuration, and the tokenizer's own."""
        found = self.config.eos_token_id
        ids = [] if found is None else [found] if isinstance(found, int) else list(found)
        if self.tokenizer.eos_token_id is not None:
            ids.append(self.tokenizer.eos_token_id)
        return tuple(dict.fromkeys(token for token in ids if 0 <= token < self.config.vocab_size))

    def _encode(self, prompt: Prompt, chat: bool | None) -> tuple[int, ...]:
        template = bool(getattr(self.tokenizer, "chat_template", None))
        if chat and not template:
            raise InputError(f"model {self.location!r}: its tokenizer has no chat template; leave out --chat")
        if template and chat is not False:
            message = [{"role": "user", "content": prompt.text}]
            text = self.tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
            ids = self.tokenizer(text, add_special_tokens=False).input_ids
        else:
            ids = self.tokenizer(prompt.text).input_ids
        if not ids:
            raise InputError(f"prompt {prompt.identifier!r}: has no tokens; give at least one character")
        return tuple(ids)


def _unreadable(location: str, error: Exception) -> InputError:
    return InputError(f"model {location!r}: cannot be loaded: {str(error).strip().splitlines()[0]}")
