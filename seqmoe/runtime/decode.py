"""Greedy decoding with a static cache: one prompt in, a fixed number of tokens out, a timestamp for each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache, StaticCache


@dataclass(slots=True)
class Generation:
    """Tokens of one prompt with the nanosecond clock of each, and the logits they were chosen from if kept."""

    request_ns: int
    tokens: list[int] = field(default_factory=list)
    token_ns: list[int] = field(default_factory=list)
    logits: list[torch.Tensor] = field(default_factory=list)

    @property
    def ttft_seconds(self) -> float:
        """Time to first token."""
        return (self.token_ns[0] - self.request_ns) / 1e9

    @property
    def decode_seconds(self) -> float:
        """Time from the first token to the last."""
        return (self.token_ns[-1] - self.token_ns[0]) / 1e9

    @property
    def decode_tok_s(self) -> float:
        """Decode throughput: (tokens - 1) / (last - first); 0 for a single token."""
        return (len(self.tokens) - 1) / self.decode_seconds if len(self.tokens) > 1 else 0.0


class Decoder:
    """Greedy decode loop over one model. Every prompt gets a static key-value cache of its size.

    Without ``static_cache`` it gets a growing one, for models whose cache cannot lie at fixed addresses.
    """

    def __init__(self, model: Any, static_cache: bool = True) -> None:
        self._model = model
        self._static = static_cache
        end = model.config.eos_token_id
        self._end = [] if end is None else [end] if isinstance(end, int) else list(end)

    @torch.inference_mode()
    def generate(
        self,
        prompt: list[int],
        tokens: int,
        keep_logits: bool = False,
        on_token: Callable[[int, int], None] | None = None,
    ) -> Generation:
        """Emit exactly ``tokens`` tokens after ``prompt``; end-of-text is never chosen, as when engines ignore it.

        ``on_token(index, token)`` is called after each token, outside the time between its neighbours' timestamps only
        as far as it is quick.
        """
        result = Generation(time.perf_counter_ns())
        config = self._model.config
        cache = (
            StaticCache(config=config, max_cache_len=len(prompt) + tokens)
            if self._static
            else DynamicCache(config=config)
        )
        ids = torch.tensor([prompt])
        for _ in range(tokens):
            logits = self._model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
            allowed = logits.clone()
            allowed[self._end] = -torch.inf
            token = int(allowed.argmax())
            result.token_ns.append(time.perf_counter_ns())
            result.tokens.append(token)
            if keep_logits:
                result.logits.append(logits)
            if on_token is not None:
                on_token(len(result.tokens) - 1, token)
            ids = torch.tensor([[token]])
        return result
