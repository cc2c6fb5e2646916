"""Recorded routing in the place of what a model's routers choose, on the device, without a look at a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmoe.adapters.base import Family


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What one request's routers are to choose, step after step, the first ``prompt`` of them in its prompt.

    ``experts`` int [steps, layers, k], negative where the routers are to choose themselves; ``weights`` float32 alike.
    """

    experts: NDArray[np.integer]
    weights: NDArray[np.float32]
    prompt: int


class ReplayedRouting:
    """Hooks on the routers of one model; without requests the routers choose as ever.

    After `begin`, forwards take the steps of the requests one after another. The place in the routing is counted on the
    device by the last router, and the tables keep their addresses as long as no larger ones are needed, so that steps
    can be captured in a CUDA graph.
    """

    def __init__(self, routers: Sequence[torch.nn.Module], family: Family, device: torch.device | str = "cpu") -> None:
        self._family, self._layers = family, len(routers)
        self._place = torch.zeros(1, dtype=torch.int64, device=device)
        self._ahead = torch.zeros(1, dtype=torch.int64, device=device)
        # [layers, batch, steps, k]
        self._experts = torch.empty(self._layers, 0, 0, 0, dtype=torch.int64, device=device)
        self._weights = torch.empty(self._layers, 0, 0, 0, device=device)
        self._active = False
        for layer, router in enumerate(routers):
            router.register_forward_hook(self._hook(layer))

    def reserve(self, batch: int, steps: int, choices: int) -> None:
        """Make room for a batch of so many steps, ``choices`` experts a token; the first ones are chosen meanwhile."""
        shape = (self._layers, batch, steps, choices)
        self._experts = torch.arange(choices, device=self._place.device).expand(shape).contiguous()
        self._weights = torch.full(shape, 1 / choices, device=self._place.device)
        self._place.zero_()
        self._active = True

    def begin(self, requests: Sequence[Replay]) -> None:
        """Replay a batch whose prompts end together: shorter ones are padded on the left by their first step."""
        longest = max(request.prompt for request in requests)
        experts = _side_by_side([_padded(request.experts, longest - request.prompt) for request in requests])
        weights = _side_by_side([_padded(request.weights, longest - request.prompt) for request in requests])
        experts, weights = experts[: self._layers], weights[: self._layers]
        steps = experts.shape[2]
        if self._experts.shape[:2] != experts.shape[:2] or self._experts.shape[2] < steps:
            self._experts = torch.empty(experts.shape, dtype=torch.int64, device=self._place.device)
            self._weights = torch.empty(experts.shape, device=self._place.device)
        self._experts[:, :, :steps].copy_(torch.from_numpy(experts.astype(np.int64)))
        self._weights[:, :, :steps].copy_(torch.from_numpy(weights.astype(np.float32)))
        self._place.zero_()
        self._active = True

    def end(self) -> None:
        """The routers choose for themselves again."""
        self._active = False

    @property
    def addresses(self) -> list[int]:
        """Where the tables lie: a captured step reads there."""
        return [self._experts.data_ptr(), self._weights.data_ptr(), self._place.data_ptr()]

    def _hook(self, layer: int) -> Callable[..., Any]:
        def replace(module: Any, arguments: Any, output: Any) -> Any:
            return self._replaced(layer, output) if self._active else None

        return replace

    def _replaced(self, layer: int, output: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        own = self._family.routing(output)
        table = self._experts[layer]
        tokens = len(own.indices) // len(table)
        if tokens > len(self._ahead):  # a prompt; a decode step finds it long enough
            self._ahead = torch.arange(tokens, device=self._ahead.device)
        rows = self._place + self._ahead[:tokens]
        experts = table.index_select(1, rows).flatten(0, 1)
        weights = self._weights[layer].index_select(1, rows).flatten(0, 1).to(own.weights.dtype)
        given = experts >= 0
        if layer + 1 == self._layers:
            self._place += tokens
        return (
            own.logits,
            torch.where(given, weights, own.weights),
            torch.where(given, experts, own.indices.to(torch.int64)),
        )


def _padded(steps: NDArray[Any], count: int) -> NDArray[Any]:
    return np.concatenate([np.repeat(steps[:1], count, axis=0), steps]) if count else steps


def _side_by_side(requests: list[NDArray[Any]]) -> NDArray[Any]:
    """From [steps, layers, k] each to [layers, batch, steps, k], as long as the shortest."""
    steps = min(map(len, requests))
    return np.stack([request[:steps] for request in requests]).transpose(2, 0, 1, 3)
