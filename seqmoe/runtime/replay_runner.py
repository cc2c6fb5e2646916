"""Replayed routing in the terms of the worker protocol: requests of a trace through one system after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from seqmoe.predictor.base import Predictor
from seqmoe.predictor.load import predictor_for
from seqmoe.predictor.online import ONLINE
from seqmoe.runtime.decode import Generation
from seqmoe.runtime.dilation import HEAVIEST, Case, find_emulation
from seqmoe.runtime.emulation import Emulation
from seqmoe.runtime.meter import DecodeMeter
from seqmoe.runtime.numa import numa_policy
from seqmoe.runtime.replayed import ReplayedEngine
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.pace import Pace
from seqmoe.spec.system import SystemSpec, system
from seqmoe.spec.trace import DECODE, RequestTrace, TraceSet
from seqmoe.traces.source import load_traces

# Enough layers to see how long they work, and short where time is stretched most.
_TRIAL_TOKENS = 24
_TRIAL_RESIDENCY = 0.35

Emit = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Replay:
    """What is replayed: ``requests`` of ``traces`` (what `load_traces` reads) by index, after the one to warm up with.

    ``expert_bytes`` is the real expert's size. ``predictor`` is a kind of `seqmoe.predictor.online.ONLINE`, which
    learns as it goes, or a predictor's file; None for systems that need none. Without ``dilation`` the factor is found
    by trying, with full load and with each predictor of ``trial``: those of all the systems that are compared.
    """

    traces: str
    requests: tuple[int, ...]
    expert_bytes: int
    pace: Pace
    warm_up: int | None = None
    predictor: str | None = None
    dilation: float | None = None
    trial: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplayCase:
    """One system on a replay: its share of the experts, requests that run together, and tokens of each."""

    spec: SystemSpec
    residency: float
    batch: int
    tokens: int


class ReplayRunner:
    """Runs cases; keeps the engine of the last traces, full load's answers and the factor between them."""

    def __init__(self) -> None:
        self._engine: ReplayedEngine | None = None
        self._traces: TraceSet | None = None
        self._loaded: tuple[str, int] = ("", 0)
        self._requests: dict[int, RequestTrace] = {}
        self._answers: dict[tuple[Any, ...], list[list[int]]] = {}
        self._emulations: dict[tuple[Any, ...], Emulation] = {}

    def run(self, replay: Replay, case: ReplayCase, emit: Emit) -> None:
        """Place, warm up and replay; events of the worker protocol go to ``emit``.

        Raises `InputError` for what does not fit the traces, ``ValueError`` for requests that are too short.
        """
        engine = self._load(replay)
        groups = list(self._groups(replay, case))
        answers = self._answers_of(engine, replay, case, groups)
        emulation = self._emulation_of(engine, replay, case, groups[0])
        engine.place(case.spec, case.residency, predictor_of(case.spec, replay.predictor, engine), emulation)
        emit(event="ready")
        if replay.warm_up is not None:
            engine.generate([self._requests[replay.warm_up]] * case.batch, case.tokens)
        assert engine.pacer is not None
        engine.pacer.forget()
        meter = DecodeMeter(engine)
        results: list[Generation] = []
        for group in groups:
            results += engine.generate(group, case.tokens, meter)
            meter.prompt_done()
        for index, result in enumerate(results):
            _emit_times(index, result, partial(emulation.real_ns, results[0].request_ns), emit)
        statistics = meter.statistics(emulation) | {
            "hit_rate": meter.hit_rate,
            "same_answer": [result.tokens for result in results] == answers,
            "distinct_experts_per_layer": float(
                np.mean([_distinct(request, case.tokens) for group in groups for request in group])
            ),
            "threads": torch.get_num_threads(),
            "numa": numa_policy(),
        }
        for name, value in statistics.items():
            emit(event="stat", name=name, value=value)
        emit(event="done")

    def close(self) -> None:
        """End the prefetch worker, if one runs."""
        if self._engine is not None:
            self._engine.close()

    def _load(self, replay: Replay) -> ReplayedEngine:
        wanted = (replay.traces, replay.expert_bytes)
        if self._engine is None or self._traces is None or self._loaded != wanted:
            self.close()
            self._traces = load_traces(replay.traces)
            self._engine, self._loaded = ReplayedEngine(self._traces, replay.expert_bytes), wanted
            self._answers, self._emulations, self._requests = {}, {}, {}
        asked = {*replay.requests, *([] if replay.warm_up is None else [replay.warm_up])} - self._requests.keys()
        if not asked <= set(range(len(self._traces.requests))):
            raise InputError(f"requests {sorted(asked)}: the traces have {len(self._traces.requests)}")
        self._requests |= {index: self._traces.requests[index] for index in asked}
        return self._engine

    def _groups(self, replay: Replay, case: ReplayCase) -> Iterator[list[RequestTrace]]:
        for start in range(0, len(replay.requests), case.batch):
            yield [self._requests[index] for index in replay.requests[start : start + case.batch]]

    def _answers_of(
        self, engine: ReplayedEngine, replay: Replay, case: ReplayCase, groups: list[list[RequestTrace]]
    ) -> list[list[int]]:
        """Full load's own tokens, at this host's speed."""
        key = (replay.requests, case.tokens)
        if key not in self._answers:
            engine.place_full()
            answers = [result.tokens for group in groups for result in engine.generate(group, case.tokens)]
            self._answers[key] = answers
        return self._answers[key]

    def _emulation_of(
        self, engine: ReplayedEngine, replay: Replay, case: ReplayCase, group: list[RequestTrace]
    ) -> Emulation:
        """One factor for all systems that are compared, found at the first of them; see `seqmoe.runtime.dilation`."""
        if replay.dilation is not None:
            return Emulation(replay.pace, replay.dilation)
        trial = replay.trial or (() if replay.predictor is None else (replay.predictor,))
        key = (replay.pace, trial, case.batch)
        if key not in self._emulations:
            heaviest = system(HEAVIEST)
            cases = [Case(system("full"), 1.0, None)]
            cases += [
                Case(heaviest, _TRIAL_RESIDENCY, predictor_of(heaviest, predictor, engine)) for predictor in trial
            ]
            tokens = min(_TRIAL_TOKENS, case.tokens)
            self._emulations[key] = find_emulation(engine, replay.pace, cases, lambda: engine.generate(group, tokens))
        return self._emulations[key]


class HasGeometry(Protocol):
    """An engine of any kind."""

    geometry: Geometry


def predictor_of(spec: SystemSpec, name: str | None, engine: HasGeometry) -> Predictor | None:
    """The predictor of a system: one that learns as it goes by its kind, or a file's; None for a system without.

    Raises `InputError` for a file that was made for another geometry.
    """
    geometry = engine.geometry
    if spec.predictor != "none" and name in ONLINE:
        return ONLINE[name](geometry.layers, geometry.experts, geometry.top_k)
    found = predictor_for(spec, name)
    if found is not None and (found.layers, found.experts) != (geometry.layers, geometry.experts):
        raise InputError(
            f"{name}: made for {found.layers} layers of {found.experts} experts, but what runs has "
            f"{geometry.layers} of {geometry.experts}"
        )
    return found


def _emit_times(index: int, result: Generation, real: Callable[[int], int], emit: Emit) -> None:
    emit(event="request", prompt=index, time_ns=real(result.request_ns))
    for token, time_ns in zip(result.tokens, result.token_ns, strict=True):
        emit(event="token", prompt=index, token=token, time_ns=real(time_ns))


def _distinct(request: RequestTrace, tokens: int) -> float:
    """Distinct experts per layer over the decode steps that are replayed."""
    begin = max(1, int(np.argmax(request.phase == DECODE)))
    steps = request.experts[begin : begin + tokens - 1]
    return float(np.mean([len(np.unique(steps[:, layer])) for layer in range(steps.shape[1])])) if len(steps) else 0.0
