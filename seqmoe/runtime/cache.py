"""A batch of prompts as a model reads it, and the key-value cache that it is decoded with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, StaticCache


def new_cache(config: Any, static: bool, length: int) -> Any:
    """A cache for sequences of up to ``length`` tokens.

    Static ones lie at fixed addresses, as graphs need; sliding-window and linear-attention layers have static kinds of
    their own in Transformers. A family whose layers keep a compressed context has its own kinds of layers, which grow:
    `DynamicCache` makes those.
    """
    return StaticCache(config=config, max_cache_len=length) if static else DynamicCache(config=config)


class Batch:
    """Prompts of any lengths, padded on the left so that they end together, and room for ``tokens`` more.

    ``ids`` int64 [batch, longest], ``real`` bool [batch, longest] is False on padding, ``length`` the whole sequence's.
    """

    def __init__(self, prompts: list[list[int]], tokens: int) -> None:
        longest = max(map(len, prompts))
        self.length = longest + tokens
        self.ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        pads = torch.tensor([[longest - len(prompt)] for prompt in prompts])
        self._longest = longest
        self._padded = len({len(prompt) for prompt in prompts}) > 1
        self._real = torch.arange(self.length) >= pads
        self._positions = (torch.arange(self.length) - pads).clamp(min=0)
        self.real: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = self._real[:, :longest].numpy()

    def mask(self, index: int) -> torch.Tensor | None:
        """Attention mask [batch, tokens so far] of step ``index``, 0 for the prompts; None where nothing is padded."""
        return self._real[:, : self._longest + index] if self._padded else None

    @property
    def whole_mask(self) -> torch.Tensor:
        """Attention mask int64 [batch, length], for steps that are told their place: what is to come counts as real."""
        return self._real.expand(len(self.ids), -1).to(torch.int64)

    def places(self, index: int) -> torch.Tensor:
        """As `positions` of a decode step, int64 [batch, 1], of any batch."""
        place = self._longest + index - 1
        return self._positions[:, place : place + 1]

    def positions(self, index: int) -> torch.Tensor | None:
        """Position ids of the tokens that step ``index`` reads, [batch, tokens]; each prompt's own begin with 0.

        None where nothing is padded: a model then counts by its cache.
        """
        if not self._padded:
            return None
        if index == 0:
            return self._positions[:, : self._longest]
        place = self._longest + index - 1
        return self._positions[:, place : place + 1]
