"""One decode step of a model through its compiled code and whatever placement its experts have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from seqmoe.adapters.base import ExpertsModule
from seqmoe.core.step import DecodeStep
from seqmoe.runtime.full_load import Placement
from seqmoe.runtime.graph.caches import state_of
from seqmoe.runtime.graph.package import Progress, compiled_step, to_stderr
from seqmoe.runtime.graph.store import Store
from seqmoe.runtime.offload import Router
from seqmoe.spec.geometry import Geometry


class CompiledStep:
    """Decode steps of ``batch`` requests; the cache must come from `seqmoe.runtime.graph.caches.static_cache`.

    Between the layers no Python runs but what the placement asks for: scores that depend on use (LRU, LFU), the
    predictor at its trigger layers, and an emulation's pacer.
    """

    def __init__(
        self,
        model: Any,
        experts: Sequence[ExpertsModule],
        geometry: Geometry,
        batch: int = 1,
        store: Store | None = None,
        progress: Progress = to_stderr,
    ) -> None:
        """Compile, or load what was compiled before; raises `InputError` as `compiled_step` does."""
        self._run = compiled_step(model, experts, batch, store or Store.default(), progress)
        self._geometry = geometry
        self._batch = batch
        self._placement: Placement | None = None
        self._experts: DecodeStep | None = None
        self._cache: Any = None
        self._state: list[torch.Tensor] = []

    def __call__(
        self,
        router: Router,
        position: int,
        ids: torch.Tensor,
        positions: torch.Tensor,
        cache: Any,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """One step: ``ids`` and ``positions`` int64 [batch, 1] to logits [batch, vocabulary]; the cache is advanced.

        ``position`` is what `Router.begin_step` gave. ``mask`` int64 [batch, length of the cache], 0 where prompts were
        padded, belongs to batches above one. Raises what a callback or the pipeline raised in it.
        """
        step = self._attach(router.placement)
        if cache is not self._cache:
            self._cache, self._state = cache, [owner[key] for owner, key in state_of(cache)]
        _begin(step, router, position)
        # Compiled code reads by address; it does not look at strides.
        own = [tensor.contiguous() for tensor in (ids, positions, mask) if tensor is not None]
        (logits,) = self._run([*own[:2], self._target, *self._state, *own[2:]])
        step.finish()
        router.timers.placing_ns += step.placing_ns
        if router.recorded is not None:
            router.recorded.extend(step.experts.copy())
        return logits

    def detach(self) -> None:
        """Let go of pool and cache, which may be large, until the next step."""
        self._placement = self._experts = self._cache = None
        self._state = []

    def _attach(self, placement: Placement) -> DecodeStep:
        """Experts are where the placement's pool is, until there is another placement."""
        if placement is self._placement and self._experts is not None:
            return self._experts
        geometry, pool = self._geometry, placement.pool
        self._experts = DecodeStep(
            geometry.layers, geometry.experts, self._batch, geometry.top_k, *pool.arrays, placement.pipeline,
            **pool.options,
        )  # fmt: skip
        self._target = torch.tensor(self._experts.address)
        self._placement = placement
        return self._experts


def _begin(step: DecodeStep, router: Router, position: int) -> None:
    placement = router.placement
    passed = 0

    def needed(layer: int) -> None:
        placement.needed(layer, step.distinct())

    def routed(layer: int) -> None:
        nonlocal passed
        for number in range(passed, layer + 1):
            placement.routed(number, step.experts[number], step.weights[number])
        passed = layer + 1

    def done(layer: int) -> None:
        if router.pacer is not None:
            router.pacer.layer_done(*placement.take_waits())

    step.begin(
        position,
        needed=needed if placement.scores_on_access else None,
        routed=routed if placement.trigger_layers else None,
        done=done if router.pacer is not None else None,
        triggers=sorted(placement.trigger_layers),
    )
