"""Greedy decoding whose steps are compiled; prompts run as in every execution mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from seqmoe.adapters.base import ExpertsModule
from seqmoe.runtime.cache import Batch
from seqmoe.runtime.decode import Decoder, Generation
from seqmoe.runtime.graph.caches import static_cache
from seqmoe.runtime.graph.experts_op import compiler
from seqmoe.runtime.graph.package import Progress, to_stderr
from seqmoe.runtime.graph.step import CompiledStep
from seqmoe.runtime.graph.store import Store
from seqmoe.runtime.offload import Router
from seqmoe.runtime.sampling import Sampler
from seqmoe.spec.geometry import Geometry


class GraphDecoder(Decoder):
    """A decoder for `execution="graph"` on the CPU; a step is compiled before its first batch of that size starts."""

    def __init__(
        self,
        model: Any,
        experts: Sequence[ExpertsModule],
        geometry: Geometry,
        router: Router,
        store: Store | None = None,
        progress: Progress = to_stderr,
    ) -> None:
        """Raises `InputError` without a C++ compiler, and for a family whose steps cannot be compiled."""
        super().__init__(model, True, router)
        compiler()
        self.new_cache(2)  # refuses families that cannot be compiled, before anything is
        self._experts, self._geometry = experts, geometry
        self._store, self._progress = store or Store.default(), progress
        self._steps: dict[int, CompiledStep] = {}

    def prepare(self, batch: int) -> CompiledStep:
        """The step for that many requests, compiled or loaded at first; `InputError` where that is impossible."""
        if batch not in self._steps:
            self._steps[batch] = CompiledStep(
                self._model, self._experts, self._geometry, batch, self._store, self._progress
            )
        return self._steps[batch]

    def stream(
        self, prompts: list[list[int]], tokens: int, keep_logits: bool = False, sampler: Sampler | None = None
    ) -> Iterator[list[Generation]]:
        """As `Decoder.stream`; compiling is not part of any request's time."""
        compiled = self.prepare(len(prompts))
        try:
            yield from super().stream(prompts, tokens, keep_logits, sampler)
        finally:
            compiled.detach()

    def new_cache(self, length: int) -> Any:
        """One that compiled code can take."""
        return static_cache(self._model.config, length)

    @torch.inference_mode()
    def step(self, ids: torch.Tensor, batch: Batch, cache: Any, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """As `Decoder.step`."""
        if index == 0:
            return super().step(ids, batch, cache, index)
        rows = len(ids)
        mask = batch.whole_mask if rows > 1 else None
        logits = self.prepare(rows)(self._router, self._router.position, ids, batch.places(index), cache, mask)
        return self.choose(logits)
