"""Synthetic requests of a model, as traces like any others, and labelled as what they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.trace import DECODE, PREFILL, RequestTrace, TraceSet
from seqmoe.traces.synthesis.process import Floats, Latents, RoutingProcess, chosen, draw

SOURCE = "synthetic routing"


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticRequests(Sequence[RequestTrace]):
    """``number`` requests of ``prompt`` prefill and ``decode`` decode tokens, drawn when they are asked for."""

    geometry: Geometry
    process: RoutingProcess
    number: int
    prompt: int
    decode: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.number < 1 or self.decode < 1 or self.prompt < 0:
            raise InputError(
                f"--requests {self.number}, --decode {self.decode}, --prompt {self.prompt}: "
                "at least 1, 1 and 0 are needed"
            )

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Iterator[RequestTrace]:
        return (self[index] for index in range(self.number))

    @overload
    def __getitem__(self, index: int) -> RequestTrace: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RequestTrace]: ...
    def __getitem__(self, index: int | slice) -> RequestTrace | Sequence[RequestTrace]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(self.number))]
        place = range(self.number)[index]
        return self.request(place, self.latents(place))

    def popularity(self) -> Floats:
        """The model's own, float32 [layers, experts]: it depends on the seed alone, not on the request."""
        generator = np.random.default_rng([self.seed, 0])
        return generator.standard_normal((self.geometry.layers, self.geometry.experts), dtype=np.float32)

    def latents(self, index: int) -> Latents:
        """The process behind a request."""
        generator = np.random.default_rng([self.seed, 1, index])
        return draw(self.process, self.popularity(), self.prompt + self.decode, generator)

    def request(self, index: int, latents: Latents) -> RequestTrace:
        """The request of those latents; weights are the softmax over the chosen experts' values."""
        value = latents.value
        experts = chosen(value, self.geometry.top_k)
        phase = np.full(len(experts), DECODE, dtype=np.uint8)
        phase[: self.prompt] = PREFILL
        return RequestTrace(
            experts=experts,
            phase=phase,
            weights=_softmax(np.take_along_axis(value, experts.astype(np.int64), axis=-1)),
            prompt_length=self.prompt,
            dataset=SOURCE,
            identifier=f"synthetic-{self.seed}-{index}",
        )


def synthesise(name: str, requests: SyntheticRequests) -> TraceSet:
    """The requests as a set of the model ``name``."""
    geometry = requests.geometry
    return TraceSet(
        model=name,
        layers=geometry.layers,
        experts=geometry.experts,
        top_k=geometry.top_k,
        requests=requests,
        source=SOURCE,
        expert_bytes=geometry.expert_bytes,
        model_top_k=geometry.top_k,
        router="softmax_renormalised",
        licence="Apache-2.0",
    )


def _softmax(values: Floats) -> NDArray[np.float32]:
    power = np.exp(values - values.max(-1, keepdims=True))
    weights: NDArray[np.float32] = power / power.sum(-1, keepdims=True)
    return weights
