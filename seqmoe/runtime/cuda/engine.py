"""A model on a device and the systems that can be tried on it: load once, place, generate, place again."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from seqmoe.predictor.base import Predictor
from seqmoe.runtime.cache import Batch
from seqmoe.runtime.cuda.capture import CapturedStep
from seqmoe.runtime.cuda.device import Device
from seqmoe.runtime.cuda.loading import DeviceModel
from seqmoe.runtime.cuda.placement import DevicePlacement, Resident, Slots, SlotsRequest
from seqmoe.runtime.cuda.pool import HostExperts
from seqmoe.runtime.cuda.step import DecodeStep
from seqmoe.runtime.decode import Generation, OnToken
from seqmoe.runtime.random_model.routing import Replay, ReplayedRouting
from seqmoe.runtime.retention import Offline
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.system import SystemSpec


class Runnable(Protocol):
    """A decode step, launched kernel by kernel or as one graph."""

    def run(self) -> None:
        """Launch it."""


class CudaEngine:
    """One model on one device. Prompts go through the decode step token by token, all of a batch of equal length.

    ``replays`` makes it a model whose routing is replayed, see `generate`.
    """

    def __init__(self, loaded: DeviceModel, device: Device, replays: bool = False) -> None:
        self._loaded, self.device = loaded, device
        self.geometry: Geometry = loaded.host.geometry
        routers = loaded.family.routers(loaded.model)
        self._routing = ReplayedRouting(routers, loaded.family, device.device) if replays else None
        self._placement: DevicePlacement | None = None
        self._step: DecodeStep | None = None
        self._runnable: Runnable | None = None
        self._batch = self._length = 0

    def place(
        self,
        spec: SystemSpec,
        residency: float,
        predictor: Predictor | None = None,
        offline: Offline | None = None,
        *,
        batch: int = 1,
        length: int = 256,
        kernel: str = "triton",
    ) -> None:
        """Choose a system for ``batch`` requests of up to ``length`` tokens, its pool empty, its step captured.

        With execution "graph" the step is one CUDA graph; a CPU in a device's place runs the same launches one by one.
        ``kernel`` computes the experts (`seqmoe.runtime.kernels.library`).
        Raises `InputError` for what the device does not do, and where a step cannot be captured; ``ValueError`` for
        residencies that do not exist; `OutOfMemoryError` where device memory is too small.
        """
        self.unplace()
        self._batch, self._length = batch, length
        rows = batch * self.geometry.top_k
        host, offline = self._loaded.host, offline or Offline()
        if self._routing is not None:
            self._routing.reserve(batch, length, self.geometry.top_k)
        if spec.retention == "all":
            self._placement = Resident(host, self.device, rows, spec.execution, kernel)
        else:
            request = SlotsRequest(spec, residency, batch, predictor, offline)
            self._placement = Slots(host, self.device, request, spec.execution, kernel)
        self._step = DecodeStep(self._loaded.model, self._loaded.experts, self._placement, batch, length)
        captured = spec.execution == "graph" and self.device.captures
        self._runnable = CapturedStep(self._step) if captured else self._step

    @property
    def host(self) -> HostExperts:
        """Every expert."""
        return self._loaded.host

    @property
    def placement(self) -> DevicePlacement:
        """What was placed; ``RuntimeError`` before."""
        if self._placement is None:
            raise RuntimeError("no system is placed yet")
        return self._placement

    @property
    def step(self) -> DecodeStep:
        """The placed system's step; ``RuntimeError`` before."""
        if self._step is None:
            raise RuntimeError("no system is placed yet")
        return self._step

    def advance(self) -> None:
        """Launch one step over what lies in its ``ids``."""
        self.placement.before_step()
        assert self._runnable is not None
        self._runnable.run()

    @contextmanager
    def uncaptured(self) -> Iterator[None]:
        """Meanwhile steps are launched kernel by kernel, captured or not: what is in between can be timed."""
        runnable, self._runnable = self._runnable, self.step
        try:
            yield
        finally:
            self._runnable = runnable

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        tokens: int,
        *,
        replays: Sequence[Replay] | None = None,
        keep_logits: bool = False,
        on_token: OnToken | None = None,
    ) -> list[Generation]:
        """Greedy decoding of prompts of one length; the host reads each step's tokens and nothing else.

        ``replays`` are what the routers choose, one for each prompt. ``on_token(index, token)`` is called after each
        step with the first request's. Raises ``ValueError`` for a batch or a length that the step was not placed for,
        ``RuntimeError`` where the prefetch worker has failed or an expert found no slot.
        """
        step = self.step
        longest = max(map(len, prompts), default=0)
        if len(prompts) != self._batch or {len(prompt) for prompt in prompts} != {longest} or not longest:
            raise ValueError(f"{len(prompts)} prompts: {self._batch} of one length, at least 1, were placed for")
        if longest + tokens > self._length or tokens < 1:
            raise ValueError(f"{longest} prompt tokens + {tokens} new ones: {self._length} were placed for")
        self._begin(replays)
        results = [Generation(time.perf_counter_ns()) for _ in prompts]
        for column in Batch([list(prompt) for prompt in prompts], tokens).ids.T:
            step.ids.copy_(column[:, None])
            self.advance()
        for index in range(tokens):
            if index:
                self.advance()
            found = step.tokens.tolist()
            now = time.perf_counter_ns()
            for row, result in enumerate(results):
                result.tokens.append(found[row])
                result.token_ns.append(now)
                if keep_logits:
                    result.logits.append(step.logits[row].float().cpu())
            if on_token is not None:
                on_token(index, found[0])
        self.placement.check()
        return results

    def _begin(self, replays: Sequence[Replay] | None) -> None:
        self.device.synchronize()
        if (self._routing is None) != (replays is None):
            raise ValueError("replays: are given to an engine that was made for them, and to no other")
        if self._routing is not None and replays is not None:
            # No more than what was reserved: a captured step finds the tables where they were.
            steps = self._length
            self._routing.begin(
                [replace(one, experts=one.experts[:steps], weights=one.weights[:steps]) for one in replays]
            )
        self.step.reset()
        self.placement.begin_request()

    def unplace(self) -> None:
        """End the worker and free graph, cache and pool, before there are others."""
        self.device.synchronize()
        if self._placement is not None:
            self._placement.stop()
        self._runnable = self._step = self._placement = None
        for module in self._loaded.experts:
            module.seqmoe_router = None
        gc.collect()

    close = unplace
