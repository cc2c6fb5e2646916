"""One decode step: Transformers' own attention, routers, norms and head, with our function in the place of experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from seqmoe.adapters.base import ExpertsModule
from seqmoe.runtime.cuda.placement import DevicePlacement
from seqmoe.runtime.graph.caches import state_of, static_cache
from seqmoe.runtime.kernels import greedy

NAME = "seqmoe_cuda"


class DecodeStep:
    """From one token of each request to the next, everything at fixed addresses and nothing read by the host.

    ``ids`` and ``positions`` int64 [batch, 1] are the step's input; `run` leaves the next step's there, and the chosen
    tokens in ``tokens`` int64 [batch]. ``logits`` [batch, vocabulary] are those of the last run. Prompts go through it
    token by token. Raises `InputError` for a family whose cache is not of fixed size.
    """

    def __init__(
        self, model: Any, experts: Sequence[ExpertsModule], placement: DevicePlacement, batch: int, length: int
    ) -> None:
        self._model, self.placement, self.model_type = model, placement, model.config.model_type
        self._cache = static_cache(model.config, length)
        device = next(model.parameters()).device
        self.ids = torch.zeros((batch, 1), dtype=torch.int64, device=device)
        self.positions = torch.zeros((batch, 1), dtype=torch.int64, device=device)
        self.tokens = torch.zeros(batch, dtype=torch.int64, device=device)
        self.logits = torch.zeros(0, device=device)
        self._best = greedy.workspace(batch, model.config.vocab_size, device)
        end = model.config.eos_token_id
        ends = [] if end is None else [end] if isinstance(end, int) else list(end)
        self._end = torch.tensor(ends, dtype=torch.int64, device=device)
        for layer, module in enumerate(experts):
            module.seqmoe_layer = layer
            module.seqmoe_router = self

    @torch.inference_mode()
    def reset(self) -> None:
        """Begin at position 0 with an empty cache."""
        self.positions.zero_()
        for owner, key in state_of(self._cache):
            owner[key].zero_()

    @torch.inference_mode()
    def run(self) -> None:
        """Launch the whole step."""
        self.logits = self._model(
            input_ids=self.ids, position_ids=self.positions, cache=self._cache, use_cache=True, logits_to_keep=1
        ).logits[:, -1]
        allowed = self.logits.index_fill(1, self._end, -torch.inf)  # end of text is never chosen
        greedy.launch(allowed, self._best, self.tokens)
        self.ids.copy_(self.tokens[:, None])
        self.positions.add_(1)

    def experts(self, layer: int, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """What the model calls between routing and experts."""
        return self.placement.layer(layer, hidden, index, weights)

    @property
    def addresses(self) -> list[int]:
        """Where the cache lies: a captured step reads and writes there."""
        return [owner[key].data_ptr() for owner, key in state_of(self._cache)]


def _experts_forward(
    module: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    step: DecodeStep = module.seqmoe_router
    return step.experts(module.seqmoe_layer, hidden_states, top_k_index, top_k_weights)


ALL_EXPERTS_FUNCTIONS.register(NAME, _experts_forward)
