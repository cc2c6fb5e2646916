"""The CUDA engine behind the worker protocol: one request of a measured cell, as events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import seqmoe
from seqmoe.core.driver import CudaMissingError
from seqmoe.core.mapped_memory import PinningError
from seqmoe.predictor.load import predictor_for
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.cuda.clock import CopyClock
from seqmoe.runtime.cuda.device import Device, GpuDevice
from seqmoe.runtime.cuda.engine import CudaEngine
from seqmoe.runtime.cuda.loading import load_on, random_on
from seqmoe.runtime.cuda.placement import Slots
from seqmoe.runtime.decode import Generation
from seqmoe.runtime.profile import profile_for
from seqmoe.runtime.protocol import Request
from seqmoe.runtime.random_model.opened import Opened
from seqmoe.runtime.random_model.prompts import prompt_of
from seqmoe.runtime.random_model.routing import Replay
from seqmoe.runtime.replay_runner import predictor_of
from seqmoe.spec.errors import InputError, OutOfMemoryError
from seqmoe.spec.system import SystemSpec, system

Emit = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Work:
    """Prompts that decode together, one of each batch's requests after another, and their replays where there are."""

    prompts: list[list[int]]
    replays: list[Replay] | None


class CudaServer:
    """Serves requests of one device; keeps the last model and full load's answers of the last workload."""

    def __init__(self, device: Device | None = None) -> None:
        """``device`` is the first GPU if not given; it is opened with the first request."""
        self._device = device
        self._engine: CudaEngine | None = None
        self._opened: Opened | None = None
        self._loaded: object = None
        self._workload: object = None
        self._answers: list[list[int]] | None = None

    def run(self, request: Request, spec: SystemSpec, emit: Emit) -> None:
        """Load, place, warm up and decode; see `seqmoe.runtime.worker`.

        Raises `InputError` where there is no GPU, ``MemoryError`` where memory cannot be pinned, else as the engine.
        """
        try:
            self._run(request, spec, emit)
        except CudaMissingError as error:
            raise InputError(str(error)) from None
        except PinningError as error:
            raise MemoryError(f"host_pinned: {error}") from None

    def _run(self, request: Request, spec: SystemSpec, emit: Emit) -> None:
        if request.options.link_ratio is not None:
            raise InputError("a cell with a link imitates one on a CPU; a GPU has its own: leave `link` out")
        engine = self._load(request)
        works = self._works(request)
        length = max(len(work.prompts[0]) for work in works) + request.decode_tokens
        answers = self._answers_of(request, spec, works, length)
        self._place(engine, request, spec, length)
        emit(event="ready")
        warm_up = self._warm_up(request)
        if warm_up is not None:
            self._decode(engine, warm_up, request.decode_tokens)
        meter = _Meter(engine)
        results: list[Generation] = []
        for work in works:
            results += self._decode(engine, work, request.decode_tokens, meter)
            meter.prompt_done()
        for index, result in enumerate(results):
            emit(event="request", prompt=index, time_ns=result.request_ns)
            for token, time_ns in zip(result.tokens, result.token_ns, strict=True):
                emit(event="token", prompt=index, token=token, time_ns=time_ns)
        if answers is None:
            emit(event="stat", name="same_answer", missing="full load does not fit into the device's memory")
        else:
            emit(event="stat", name="same_answer", value=[result.tokens for result in results] == answers)
        for name, value in meter.statistics(spec).items():
            emit(event="stat", name=name, value=value)
        for name, value in self._copies(engine, works[0], request.decode_tokens).items():
            emit(event="stat", name=name, value=value)
        emit(event="done")

    def _copies(self, engine: CudaEngine, work: Work, tokens: int) -> dict[str, float]:
        """Seconds of a decode step's miss copies, from a further run of one batch, launched kernel by kernel."""
        placement = engine.placement
        if not isinstance(placement, Slots) or tokens < 2:
            return {}
        clock, before = CopyClock(engine.device), 0.0

        def first(index: int, token: int) -> None:
            nonlocal before
            if index == 0:
                before = clock.seconds()

        placement.clock = clock
        try:
            with engine.uncaptured():
                engine.generate(work.prompts, tokens, replays=work.replays, on_token=first)
            return {"miss_copy_seconds_per_step": (clock.seconds() - before) / (tokens - 1)}
        finally:
            placement.clock = None

    def close(self) -> None:
        """End the prefetch worker, if one runs."""
        if self._engine is not None:
            self._engine.close()

    def _load(self, request: Request) -> CudaEngine:
        wanted = request.model_path if request.random is None else request.random.key
        if self._engine is None or self._loaded != wanted:
            self.close()
            self._engine, self._workload = None, None
            self._device = self._device or GpuDevice()
            if request.random is None:
                self._opened = None
                loaded = load_on(Checkpoint.open(request.model_path, "bfloat16"), self._device)
            else:
                self._opened = Opened.of(request.random)
                loaded = random_on(self._opened.checkpoint, request.random.model.format, self._device)
            self._engine = CudaEngine(loaded, self._device, replays=request.random is not None)
            self._loaded = wanted
        return self._engine

    def _works(self, request: Request) -> list[Work]:
        if request.random is None or self._opened is None:
            return [Work(group, None) for group in request.groups]
        found = [prompt_of(self._opened, index, request.decode_tokens) for index in request.random.requests]
        size = request.cell.batch
        return [_work(found[start : start + size]) for start in range(0, len(found), size)]

    def _warm_up(self, request: Request) -> Work | None:
        """What is decoded before the clock starts; a replay has a request for that."""
        if request.random is None or self._opened is None:
            return Work(request.groups[-1], None) if request.warmup else None
        if request.random.warm_up is None:
            return None
        return _work([prompt_of(self._opened, request.random.warm_up, request.decode_tokens)] * request.cell.batch)

    def _answers_of(
        self, request: Request, spec: SystemSpec, works: Sequence[Work], length: int
    ) -> list[list[int]] | None:
        """Full load's tokens in the same mode; None where the device cannot hold every expert.

        Between modes a library may choose other kernels, which round differently.
        """
        random = None if request.random is None else request.random.requests
        workload = (request.prompts, random, request.decode_tokens, request.cell.batch, spec.execution)
        if self._workload != workload:
            assert self._engine is not None
            self._workload, self._answers = workload, None
            try:
                full = replace(system("full"), execution=spec.execution)
                self._engine.place(full, 1.0, batch=request.cell.batch, length=length)
            except OutOfMemoryError:
                return None
            found = [self._decode(self._engine, work, request.decode_tokens) for work in works]
            self._answers = [result.tokens for results in found for result in results]
        return self._answers

    def _place(self, engine: CudaEngine, request: Request, spec: SystemSpec, length: int) -> None:
        if request.random is not None:
            predictor = predictor_of(spec, request.random.predictor, engine)
        else:
            predictor = predictor_for(spec, request.options.predictor)
        cell, profile = request.cell, request.options.profile
        offline = profile_for(spec, None if profile is None else Path(profile), engine.geometry)
        engine.place(spec, cell.residency, predictor, offline, batch=cell.batch, length=length)

    def _decode(self, engine: CudaEngine, work: Work, tokens: int, meter: _Meter | None = None) -> list[Generation]:
        return engine.generate(work.prompts, tokens, replays=work.replays, on_token=meter)


class _Meter:
    """Counts of the decode steps, without those of the prompts."""

    def __init__(self, engine: CudaEngine) -> None:
        self._engine = engine
        self._before: dict[str, int] = {}
        self._total: dict[str, int] = {}

    def __call__(self, index: int, token: int) -> None:
        """The first token ends a prompt."""
        if index == 0:
            self._before = self._engine.placement.statistics()

    def prompt_done(self) -> None:
        """Add up what happened since the first token."""
        for name, value in self._engine.placement.statistics().items():
            self._total[name] = self._total.get(name, 0) + value - self._before.get(name, 0)

    def statistics(self, spec: SystemSpec) -> dict[str, Any]:
        """As records keep them; of full load the hit rate is 1 and nothing is moved."""
        engine, total = self._engine, self._total
        size = engine.geometry.expert_bytes
        needed = total.get("hits", 0) + total.get("misses", 0)
        return {
            "execution": spec.execution,
            "expert_format": engine.host.format.stored,
            "expert_bytes": size,
            "prefill_policy": "token by token",
            "resident_bytes": engine.placement.pool.slots * size,
            "hit_rate": total["hits"] / needed if needed else 1.0,
            "needed": needed,
            "bytes_on_demand": total.get("misses", 0) * size,
            "bytes_prefetched": total.get("worker_bytes", 0),
            "bytes_late": total.get("worker_late_bytes", 0),
            "version": seqmoe.__version__,
            "threads": torch.get_num_threads(),
        } | total


def execution_on_device(spec: SystemSpec, asked: str) -> SystemSpec:
    """The system in the mode that a cell asks for; a device's own is one graph.

    Raises `InputError` for a system whose misses are computed on the host.
    """
    if spec.miss != "load":
        raise InputError(
            f"system {spec.name!r}: the CUDA runtime loads all its misses, the host's CPU takes no part; run it in the "
            "emulated lane, or choose 'seqmoe'"
        )
    return replace(spec, execution=asked or "graph")


def _work(found: Sequence[tuple[tuple[int, ...], Replay]]) -> Work:
    prompts = [list(prompt) for prompt, _ in found]
    if len({len(prompt) for prompt in prompts}) > 1:
        raise InputError("requests of one batch have prompts of different lengths; the CUDA runtime takes equal ones")
    return Work(prompts, [replay for _, replay in found])
