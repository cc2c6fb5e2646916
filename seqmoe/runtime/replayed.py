"""Routing replayed from a trace through the real runtime: placements, pipeline, link and predictors, but no model.

Every expert is a small stand-in, really moved over the link and really computed through its slot; the link charges the
real expert's size by the time that it takes. What an expert is decides a token, and tokens decide the next step's
input: one wrong or stale slot changes every token that follows.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from seqmoe.adapters.base import ExpertFormat
from seqmoe.predictor.base import Predictor
from seqmoe.predictor.psi import activations
from seqmoe.runtime.decode import Generation
from seqmoe.runtime.emulation import Emulation, LayerPacer, decoding
from seqmoe.runtime.full_load import FullLoad
from seqmoe.runtime.offload import Router
from seqmoe.runtime.offloaded import Offloaded
from seqmoe.runtime.placement import ExpertPool
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.system import SystemSpec
from seqmoe.spec.trace import DECODE, MISSING, RequestTrace, TraceSet

# 3 kB an expert: the paper's largest geometry has 6,144 of them, and copying one takes less than a microsecond.
_STAND_IN = ExpertFormat(hidden=16, width=16, dtype="float32", activation="swiglu")
_INPUTS = 64
_ID_BITS = 31


class ReplayedEngine:
    """What `seqmoe.runtime.engine.Engine` is for a model, for the requests of a trace. ``expert_bytes`` are charged."""

    def __init__(self, traces: TraceSet, expert_bytes: int) -> None:
        self.geometry = Geometry(traces.layers, traces.experts, traces.top_k, expert_bytes)
        self.host = _stand_ins(self.geometry.total_experts)
        self.router = Router([])
        self.router.placement = FullLoad(self.host, self.geometry)
        self._router_kind = traces.router
        self._inputs = np.random.default_rng(1).standard_normal((_INPUTS, _STAND_IN.hidden), dtype=np.float32)

    def place_full(self) -> None:
        """Full load: every expert resident, at this host's own speed."""
        self._stop()
        self.pacer = None
        self.router.placement = FullLoad(self.host, self.geometry)

    def place(
        self, spec: SystemSpec, residency: float, predictor: Predictor | None, emulation: Emulation | None
    ) -> None:
        """Choose a system, see `seqmoe.runtime.engine.Engine.place`."""
        self.place_full()
        self.pacer = emulation.pacer() if emulation is not None else None
        if spec.retention == "all":
            return
        self.router.placement = Offloaded(self.host, self.geometry, spec, residency, predictor, emulation)

    @property
    def pacer(self) -> LayerPacer | None:
        """What pads the layers of an emulated system."""
        return self.router.pacer

    @pacer.setter
    def pacer(self, pacer: LayerPacer | None) -> None:
        self.router.pacer = pacer

    @property
    def offloaded(self) -> Offloaded | None:
        """The offloaded placement, or None at full load."""
        placement = self.router.placement
        return placement if isinstance(placement, Offloaded) else None

    def generate(
        self, requests: Sequence[RequestTrace], tokens: int, on_token: Callable[[int, int], None] | None = None
    ) -> list[Generation]:
        """Replay requests as one batch: their prompts one by one, then ``tokens - 1`` steps of all together.

        The prompt of a trace that has none is its first step. A token is what the step's experts made of the token
        before it, no word of any language. ``on_token(index, token)`` is called once a step, with the first request's.
        Raises ``ValueError`` for a request that is too short.
        """
        prompts = [prompt_steps(request) for request in requests]
        for request, prompt in zip(requests, prompts, strict=True):
            check_length(request, tokens, prompt)
        weights = [trace_weights(request, self.geometry.experts, self._router_kind) for request in requests]
        self.router.placement.begin_request(len(requests))
        results = []
        for request, prompt, weight in zip(requests, prompts, weights, strict=True):
            results.append(Generation(time.perf_counter_ns()))
            self.router.begin_prompt(np.ones((1, prompt), dtype=bool))
            results[-1].tokens += self._step(list(range(prompt)), request.experts[:prompt], weight[:prompt])[-1:]
        first = range(len(requests))
        with decoding(self.pacer, on_token) as on_each:
            for index in range(tokens):
                if index:
                    at = [prompt + index - 1 for prompt in prompts]
                    experts = np.stack([requests[i].experts[at[i]] for i in first])
                    self.router.begin_step()
                    found = self._step(
                        [result.tokens[-1] for result in results], experts, np.stack([weights[i][at[i]] for i in first])
                    )
                    for result, token in zip(results, found, strict=True):
                        result.tokens.append(token)
                now = time.perf_counter_ns()
                for result in results:
                    result.token_ns.append(now)
                if on_each is not None:
                    on_each(index, results[0].tokens[-1])
        return results

    def _step(self, ids: list[int], experts: NDArray[np.int16], weights: NDArray[np.float32]) -> list[int]:
        """All layers of some tokens [tokens, layers, k] at once; the token that follows each."""
        state = self._inputs[np.asarray(ids) % _INPUTS]
        present = (experts != MISSING).all(-1)
        for layer in range(self.geometry.layers):
            rows = np.flatnonzero(present[:, layer])
            if not len(rows):
                continue
            if self.router.real is not None:  # a prompt is computed as a whole, what it lacks as its padding
                self.router.real = present[None, :, layer]
                rows = np.arange(len(ids))
            chosen = np.where(present[rows, layer, None], experts[rows, layer], 0)
            inputs = [state[rows], chosen.astype(np.int32), weights[rows, layer]]
            out = self.router.compute(layer, *(torch.from_numpy(values) for values in inputs))
            state[rows] += out.numpy()
            state /= np.sqrt(np.mean(state * state, axis=1, keepdims=True))
        return [zlib.crc32(row.tobytes()) & (2**_ID_BITS - 1) for row in state]

    def _stop(self) -> None:
        if self.offloaded is not None:
            self.offloaded.stop()

    def close(self) -> None:
        """End the prefetch worker, if one runs."""
        self._stop()


def check_length(request: RequestTrace, tokens: int, prompt: int | None = None) -> None:
    """Raise ``ValueError`` for a request that cannot decode as many tokens; ``prompt`` is the number of its steps."""
    most = len(request.experts) - (prompt_steps(request) if prompt is None else prompt) + 1
    if not 0 < tokens <= most:
        raise ValueError(f"tokens = {tokens}: request {request.identifier!r} of the traces gives at most {most}")


def prompt_steps(request: RequestTrace) -> int:
    """Steps before the first decode step; one where the trace begins with decoding."""
    return max(1, int(np.argmax(request.phase == DECODE)))


def trace_weights(request: RequestTrace, experts: int, router: str) -> NDArray[np.float32]:
    """Psi of the experts of every step, [steps, layers, k]: what predictors read, and never 0 for an active expert."""
    activation = activations(request, experts, router)
    index = np.where(request.experts == MISSING, 0, request.experts).astype(np.int64)
    return np.take_along_axis(activation, index, axis=-1)


def _stand_ins(count: int) -> ExpertPool:
    """Random experts, the same everywhere; no two are alike."""
    pool = ExpertPool.empty(count, _STAND_IN)
    generator = torch.Generator().manual_seed(0)
    for tensor in pool.tensors.values():
        tensor.normal_(0.0, _STAND_IN.hidden**-0.5, generator=generator)
    return pool
