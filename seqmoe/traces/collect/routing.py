"""Pass 2: what the routers decide on known sequences, read by hooks in one prefill of several sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmoe.adapters.base import Family, Routing
from seqmoe.spec.trace import MISSING

EARLY_BEYOND_TOP_K = 4


@dataclass(frozen=True, slots=True, eq=False)
class SequenceRouting:
    """One sequence's routing: ``experts`` int16, ``weights`` and ``logits`` float32, each [tokens, layers, k].

    ``early`` int16 [tokens, layers, m], or None; see `seqmoe.spec.trace.RequestTrace`.
    """

    experts: NDArray[np.int16]
    weights: NDArray[np.float32]
    logits: NDArray[np.float32]
    early: NDArray[np.int16] | None


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """One layer's share for all tokens of a forward, on the CPU."""

    experts: torch.Tensor
    weights: torch.Tensor
    logits: torch.Tensor
    early: torch.Tensor | None


class RoutingRecorder:
    """Reads the routers of one model; hooks are in place only during `record`."""

    def __init__(self, model: Any, family: Family, early: bool = True) -> None:
        shape = family.shape(model.config)
        self._model, self._family, self._routers = model, family, family.routers(model)
        self._early = min(shape.top_k + EARLY_BEYOND_TOP_K, shape.experts) if early else 0
        if len(self._routers) != shape.layers:
            raise RuntimeError(
                f"{family.name}: {len(self._routers)} routers found, {shape.layers} MoE layers configured"
            )

    @torch.inference_mode()
    def record(self, sequences: Sequence[Sequence[int]], packed: bool) -> list[SequenceRouting]:
        """Routing of every sequence, from one forward of all.

        ``packed`` puts them one behind another in a single row, kept apart by position ids that start anew; otherwise
        each has a row of its own, padded on the right, where no causal layer looks.
        """
        ids, positions, places = _packed(sequences) if packed else _rows(sequences)
        ids = ids.to(self._model.device)
        layers: dict[int, _Layer] = {}
        with self._hooks(layers, ids.reshape(-1)):
            _forward(self._model, self._family, ids, positions, packed)
        missing = [layer for layer in range(len(self._routers)) if layer not in layers]
        if missing:
            raise RuntimeError(
                f"{self._family.name}: the routers of layers {missing} were not called; is a fused kernel on?"
            )
        return [self._sequence([layers[layer] for layer in sorted(layers)], place) for place in places]

    @contextmanager
    def _hooks(self, layers: dict[int, _Layer], token_ids: torch.Tensor) -> Iterator[None]:
        previous: list[torch.Tensor] = []

        def read(layer: int) -> Any:
            def hook(router: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
                state = inputs[0].reshape(len(token_ids), -1)
                early = self._choose_early(router, previous[0], token_ids) if self._early and previous else None
                layers[layer] = _layer(self._family.routing(output), early)
                previous[:] = [state]

            return hook

        handles = [router.register_forward_hook(read(layer)) for layer, router in enumerate(self._routers)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _choose_early(self, router: Any, state: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        return self._family.early_choice(router, state, token_ids, self._early).to("cpu", torch.int16)

    def _sequence(self, layers: list[_Layer], place: slice) -> SequenceRouting:
        def stacked(name: str) -> Any:
            return torch.stack([getattr(layer, name)[place] for layer in layers], dim=1).numpy()

        early = None
        if self._early:
            first = torch.full((place.stop - place.start, self._early), MISSING, dtype=torch.int16)
            rest = [layer.early[place] for layer in layers if layer.early is not None]
            early = torch.stack([first, *rest], dim=1).numpy()
        return SequenceRouting(stacked("experts"), stacked("weights"), stacked("logits"), early)


def isolates(model: Any, family: Family) -> bool:
    """Whether this model, with its attention implementation, keeps packed sequences apart: tried, not believed.

    Two random sequences are traced alone, packed, and run together on purpose; packing must change the second one's
    router logits ten times less than running together does (rounding of bfloat16 is far below that).
    """
    if not family.packs:
        return False
    draw = torch.Generator().manual_seed(0)
    first, second = (
        torch.randint(0, model.config.get_text_config().vocab_size, (length,), generator=draw) for length in (40, 24)
    )
    joined = torch.cat([first, second])
    positions = torch.cat([torch.arange(40), torch.arange(24)])
    alone = _last_logits(model, family, second, torch.arange(24), packed=False)
    packed = _last_logits(model, family, joined, positions, packed=True)[40:]
    mixed = _last_logits(model, family, joined, torch.arange(64), packed=False)[40:]
    return bool((packed - alone).abs().mean() < 0.1 * (mixed - alone).abs().mean())


@torch.inference_mode()
def _last_logits(model: Any, family: Family, ids: torch.Tensor, positions: torch.Tensor, packed: bool) -> torch.Tensor:
    found: list[torch.Tensor] = []

    def hook(router: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
        found.append(family.routing(output).logits.float().cpu())

    handle = family.routers(model)[-1].register_forward_hook(hook)
    try:
        _forward(model, family, ids[None].to(model.device), positions[None], packed)
    finally:
        handle.remove()
    return found[0]


def _forward(model: Any, family: Family, ids: torch.Tensor, positions: torch.Tensor, packed: bool) -> None:
    """A prefill of the model without its head; the hooks keep what is wanted."""
    positions = positions.to(model.device)
    mask = family.packed_mask(model, positions) if packed else None
    model.model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)


def _layer(routing: Routing, early: torch.Tensor | None) -> _Layer:
    active = routing.logits.gather(1, routing.indices)
    return _Layer(routing.indices.to("cpu", torch.int16), routing.weights.float().cpu(), active.float().cpu(), early)


def _packed(sequences: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor, list[slice]]:
    ends = np.cumsum([len(sequence) for sequence in sequences]).tolist()
    places = [slice(end - len(sequence), end) for end, sequence in zip(ends, sequences, strict=True)]
    ids = torch.cat([torch.tensor(sequence, dtype=torch.long) for sequence in sequences])
    positions = torch.cat([torch.arange(len(sequence)) for sequence in sequences])
    return ids[None], positions[None], places


def _rows(sequences: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor, list[slice]]:
    longest = max(len(sequence) for sequence in sequences)
    ids = torch.zeros((len(sequences), longest), dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence)
    places = [slice(row * longest, row * longest + len(sequence)) for row, sequence in enumerate(sequences)]
    return ids, torch.arange(longest).expand(len(sequences), -1), places


def packs(lengths: Sequence[int], limit: int, packed: bool) -> Iterator[range]:
    """Neighbouring sequences whose forward holds at most ``limit`` tokens, padding included; at least one each."""
    start = 0
    for stop in range(1, len(lengths) + 1):
        group = lengths[start : stop + 1]
        size = sum(group) if packed else max(group) * len(group)
        if stop == len(lengths) or size > limit:
            yield range(start, stop)
            start = stop
