"""Our own runtime behind the worker protocol: ``python -m seqmoe.runtime.worker``, JSON lines in and out.

One process serves several requests, so that a sweep loads the model once. Every request is checked against full load of
the same prompts in the same process: the tokens must be equal, and the largest logit difference is reported.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray

import seqmoe
from seqmoe.predictor.base import Predictor
from seqmoe.predictor.load import predictor_for
from seqmoe.runtime.decode import Generation
from seqmoe.runtime.dilation import HEAVIEST, emulation_of
from seqmoe.runtime.emulation import Emulation
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.meter import DecodeMeter, distinct_experts
from seqmoe.runtime.numa import numa_policy
from seqmoe.runtime.predictor_cost import pytorch_seconds
from seqmoe.runtime.profile import profile_for
from seqmoe.runtime.protocol import Request, parse_request
from seqmoe.runtime.random_model.engine import RandomEngine
from seqmoe.runtime.random_model.opened import Opened, RandomModel
from seqmoe.runtime.replay_runner import ReplayCase, ReplayRunner, predictor_of
from seqmoe.runtime.throttled import throttled_to
from seqmoe.spec.errors import InputError
from seqmoe.spec.pace import Pace
from seqmoe.spec.suite import Cell
from seqmoe.spec.system import SystemSpec, system

if TYPE_CHECKING:
    from seqmoe.runtime.cuda.serving import CudaServer


class Worker:
    """Serves requests; keeps the engine of the last model, and its full-load answers, between them."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._engine: Engine | None = None
        self._loaded: str | tuple[object, ...] = ""
        self._answers: list[Generation] = []
        self._workload: tuple[Any, ...] = ()
        self._replays = ReplayRunner()
        self._cuda: CudaServer | None = None
        self._emulations: dict[tuple[Pace, str | None], Emulation] = {}

    def serve(self, lines: TextIO) -> None:
        """Answer one request per line until end of file."""
        for line in lines:
            if not line.strip():
                continue
            try:
                self.run(parse_request(line))
            except MemoryError as error:
                self._emit(event="error", kind="oom", reason=str(error) or "host memory", hint="use a smaller model")
            except InputError as error:
                self._emit(event="error", kind="unsupported", reason=str(error), hint="")
            except ValueError as error:
                self._emit(event="error", kind="invalid", reason=str(error), hint="")
        self._replays.close()
        if self._cuda is not None:
            self._cuda.close()
        if self._engine is not None:
            self._engine.close()

    def run(self, request: Request) -> None:
        """Load, place, warm up, and decode every prompt of one request."""
        spec = _spec_of(request.cell)
        if request.replay is not None:
            cell = request.cell
            case = ReplayCase(spec, cell.residency, cell.batch, request.decode_tokens)
            torch.set_num_threads(request.threads)
            self._replays.run(request.replay, case, self._emit)
            return
        if request.model_format != "hf":
            raise InputError(f"model_format = {request.model_format!r}: the runtime loads 'hf' checkpoints")
        if request.device == "cuda":
            self._on_cuda(request)
            return
        if request.device != "cpu":
            raise InputError(f"device = {request.device!r}: the runtime drives 'cpu' and 'cuda'")
        torch.set_num_threads(request.threads)
        engine = self._load(request)
        if isinstance(engine, RandomEngine) and request.random is not None:
            request = replace(request, prompts=engine.prompts(request.random.requests, request.decode_tokens))
        answers = self._answers_of(engine, request)
        emulation = self._emulation_of(engine, request)
        predictor = _predictor_of(spec, request, engine)
        link = self._link_of(engine, request)
        profile = request.options.profile
        offline = profile_for(spec, None if profile is None else Path(profile), engine.geometry)
        engine.place(spec, request.cell.residency, predictor, emulation or link, offline)
        if link is not None:
            engine.pacer = None
        self._emit(event="ready")
        if request.warmup:
            self._warm_up(engine, request)
        engine.timers.clear()
        self._measure(engine, request, answers, emulation)
        if emulation is None:
            self._tell_parts(engine, spec, predictor, link)
        self._emit(event="done")

    def _on_cuda(self, request: Request) -> None:
        # Imported only here: it needs Triton, and what it defines is of no use without a GPU.
        from seqmoe.runtime.cuda.serving import CudaServer, execution_on_device

        self._cuda = self._cuda or CudaServer()
        spec = execution_on_device(system(request.cell.system), request.cell.execution)
        self._cuda.run(request, spec, self._emit)

    def _link_of(self, engine: Engine, request: Request) -> Emulation | None:
        ratio = request.options.link_ratio
        return throttled_to(engine, ratio) if ratio is not None else None

    def _tell_parts(
        self, engine: Engine, spec: SystemSpec, predictor: Predictor | None, link: Emulation | None
    ) -> None:
        """Where the time of the decode steps went, and what the predictor's would be in PyTorch."""
        steps = engine.timers.steps()
        if not len(steps):
            return
        for name, value in engine.timers.breakdown().as_dict().items():
            self._stat(name, value)
        self._stat("timed_steps", len(steps))
        in_pytorch = pytorch_seconds(predictor, spec.lookahead)
        if in_pytorch is not None:
            self._stat("predictor_pytorch_seconds", in_pytorch * len(steps))
        if link is not None:
            self._stat("overlap_ratio", link.overlap_ratio)
            self._stat("link_seconds_per_expert", link.link_seconds_per_expert)

    def _load(self, request: Request) -> Engine:
        random = request.random
        wanted = request.model_path if random is None else random.key
        if self._engine is None or self._loaded != wanted:
            if self._engine is not None:
                self._engine.close()
                self._engine = None  # its memory may be needed
            self._engine = Engine.load(request.model_path) if random is None else _random_engine(random, request)
            self._loaded = wanted
            self._workload = ()
            self._emulations = {}
        return self._engine

    def _emulation_of(self, engine: Engine, request: Request) -> Emulation | None:
        pace, dilation, predictor = request.options.pace, request.options.dilation, request.options.predictor
        if pace is None:
            return None
        if dilation is not None:
            return emulation_of(engine, pace, None, dilation)
        if (pace, predictor) not in self._emulations:
            forecaster = predictor_for(system(HEAVIEST), predictor) if predictor is not None else None
            self._emulations[pace, predictor] = emulation_of(engine, pace, forecaster)
        return self._emulations[pace, predictor]

    def _answers_of(self, engine: Engine, request: Request) -> list[Generation]:
        """Full load's own tokens and logits for the request's prompts, kept until another workload comes."""
        workload = (request.prompts, request.decode_tokens, request.cell.batch)
        if self._workload != workload:
            engine.place_full()
            self._answers = []
            for group in request.groups:
                self._answers += engine.generate_batch(group, request.decode_tokens, keep_logits=True)
            self._workload = workload
        return self._answers

    def _warm_up(self, engine: Engine, request: Request) -> None:
        """Decode the last prompts, so that no measured prompt follows itself; what it gave is kept apart.

        A replay has a request for that; a single one is decoded from a cold pool, after its own prompt.
        """
        prompts, random = request.groups[-1], request.random
        if isinstance(engine, RandomEngine) and random is not None:
            if random.warm_up is None:
                return
            prompts = [list(engine.prompts((random.warm_up,), request.decode_tokens)[0])] * request.cell.batch
        meter = DecodeMeter(engine)
        result = engine.generate_batch(prompts, request.decode_tokens, on_token=meter)[0]
        meter.prompt_done()
        if engine.pacer is not None:
            engine.pacer.forget()
        cold = {"ttft_s": result.ttft_seconds, "decode_tok_s": result.decode_tok_s, "hit_rate": meter.hit_rate}
        self._stat("warmup", cold)

    def _measure(
        self, engine: Engine, request: Request, answers: list[Generation], emulation: Emulation | None
    ) -> None:
        meter = DecodeMeter(engine)
        difference, same, begin_ns = 0.0, True, 0
        distinct: list[float] = []
        expected = iter(enumerate(answers))
        for group in request.groups:
            recorded: list[NDArray[np.int32]] = []
            engine.router.recorded = recorded
            results = engine.generate_batch(group, request.decode_tokens, keep_logits=True, on_token=meter)
            meter.prompt_done()
            begin_ns = begin_ns or results[0].request_ns
            real = partial(emulation.real_ns, begin_ns) if emulation is not None else int
            for result, (index, answer) in zip(results, expected, strict=False):
                self._tell_tokens(index, result, real)
                same = same and result.tokens == answer.tokens
                pairs = zip(result.logits, answer.logits, strict=True)
                difference = max(difference, *(float((a - b).abs().max()) for a, b in pairs))
            distinct.append(distinct_experts(recorded, engine.geometry.layers))
        engine.router.recorded = None
        self._stat("same_answer", same)
        self._stat("max_logit_difference", difference)
        self._stat("distinct_experts_per_layer", float(np.mean(distinct)))
        self._stat("threads", torch.get_num_threads())
        self._stat("numa", numa_policy())
        self._stat("version", seqmoe.__version__)
        if meter.hit_rate is None:
            self._emit(event="stat", name="hit_rate", missing="no decode step: one token per prompt was asked for")
        else:
            self._stat("hit_rate", meter.hit_rate)
            if request.cell.batch == 1:
                # A router chooses k distinct experts: counting assignments or distinct experts is the same.
                self._stat("per_assignment_hit_rate", meter.hit_rate)
        for name, value in meter.statistics(emulation).items():
            self._stat(name, value)

    def _tell_tokens(self, index: int, result: Generation, real: Callable[[int], int]) -> None:
        self._emit(event="request", prompt=index, time_ns=real(result.request_ns))
        for token, time_ns in zip(result.tokens, result.token_ns, strict=True):
            self._emit(event="token", prompt=index, token=token, time_ns=real(time_ns))

    def _stat(self, name: str, value: Any) -> None:
        self._emit(event="stat", name=name, value=value)

    def _emit(self, **event: Any) -> None:
        self._out.write(json.dumps(event) + "\n")
        self._out.flush()


def _spec_of(cell: Cell) -> SystemSpec:
    """The cell's system, in the mode of execution that the cell asks for."""
    spec = system(cell.system)
    try:
        return replace(spec, execution=cell.execution) if cell.execution else spec
    except ValueError as error:
        raise InputError(str(error)) from None


def _random_engine(random: RandomModel, request: Request) -> RandomEngine:
    opened, cell = Opened.of(random), request.cell
    opened.check_memory(_spec_of(cell), cell.residency, cell.batch, request.decode_tokens)
    return RandomEngine(opened)


def _predictor_of(spec: SystemSpec, request: Request, engine: Engine) -> Predictor | None:
    if request.random is not None:
        return predictor_of(spec, request.random.predictor, engine)
    return predictor_for(spec, request.options.predictor)


if __name__ == "__main__":
    # Libraries print to stdout now and then; the protocol owns it, so they are sent to stderr.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a sweep that is killed takes its worker along
    protocol_out, sys.stdout = sys.stdout, sys.stderr
    Worker(protocol_out).serve(sys.stdin)
