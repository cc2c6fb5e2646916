"""Collection from a Hugging Face MoE model in the paper's two passes: generate token sequences, then trace them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqmoe.spec.trace import DECODE, PREFILL, RequestTrace, TraceSet
from seqmoe.traces.collect.generation import BatchedGenerator, Generator, VllmGenerator, use_vllm
from seqmoe.traces.collect.model import TracedModel
from seqmoe.traces.collect.progress import Meter, Report
from seqmoe.traces.collect.ranks import Ranks
from seqmoe.traces.collect.request import CollectOptions, Prompt, Request, batches
from seqmoe.traces.collect.routing import RoutingRecorder, SequenceRouting, isolates, packs
from seqmoe.traces.collect.work import Work
from seqmoe.traces.store import StoreWriter

log = logging.getLogger(__name__)

# A store's shard ends after so many requests at least: what a kill costs, against the number of files.
_ROUND = 64
# Requests that vLLM gets at once: enough to keep it busy, and all that a kill costs.
_WHOLE = 1024
# The share of a request that is done once its tokens are there; for the estimate of the time that is left.
_GENERATED = 0.75


@dataclass(frozen=True, slots=True)
class Collected:
    """What a call did: ``skipped`` prompts leave no room in the context, ``written`` requests are new in ``out``.

    ``packed`` is None where nothing had to be traced; ``rank`` is this process among those that share the work.
    """

    out: Path
    requests: int
    written: int
    skipped: tuple[str, ...] = ()
    packed: bool | None = None
    rank: int = 0


def collect(
    model: str,
    prompts: Sequence[Prompt],
    out: Path,
    options: CollectOptions,
    *,
    name: str = "",
    licence: str = "",
    report: Report | None = None,
) -> Collected:
    """Collect traces of ``model`` (checkpoint folder or hub id) on ``prompts`` into the store ``out``.

    A request's steps are its prompt and its output without the last token, which no decode step ever reads. Called
    again, it makes only the requests that are missing; a killed call loses at most the batch under way. Started by
    Accelerate, processes share the requests. ``name`` is what the store calls the model (default: ``model``).

    Raises `InputError` for an unknown family, bad prompts or options, or a folder that holds other traces.
    """
    ranks = Ranks.current()
    traced = TracedModel.open(model)
    requests, skipped = traced.plan(prompts, options)
    if skipped:
        log.warning("%d prompts leave no room for %d tokens and are skipped", len(skipped), options.tokens)
    shape = traced.family.shape(traced.config)
    source = f"collected: {options.describe(prompts)}"
    work = Work(out, ranks.rank, ranks.count)
    work.check(source)
    finished = work.finished()
    ranks.wait()
    if finished.issuperset(request.identifier for request in requests) and work.complete():
        return Collected(out, len(requests), 0, tuple(skipped), rank=ranks.rank)
    about = TraceSet(
        name or model, shape.layers, shape.experts, shape.top_k, (), source=source, expert_bytes=_bytes(traced),
        model_top_k=shape.top_k, router=traced.family.router_kind(traced.config), licence=licence,
    )  # fmt: skip
    groups = list(batches(requests, options.batch, equal_lengths=not traced.family.packs))[ranks.rank :: ranks.count]
    groups = [left for group in groups if (left := [r for r in group if r.identifier not in finished])]
    job = _Job(traced, options, ranks, work, Meter(sum(map(len, groups)), report if ranks.rank == 0 else None))
    with StoreWriter(work.store, about) as writer:
        for part in job.rounds(groups):
            job.generate(part)
            for group in part:
                for trace in list(job.trace(group)):  # a batch is put away whole, so that resuming packs it alike
                    writer.append(trace)
            writer.flush()
    job.meter.tell("done")
    ranks.wait()
    if ranks.rank == 0:
        work.gather(about, [request.identifier for request in requests])
    ranks.wait()
    new = sum(request.identifier not in finished for request in requests)
    return Collected(out, len(requests), new, tuple(skipped), job.packed, ranks.rank)


class _Job:
    """One process's share: the model is loaded when it is first needed, and once."""

    def __init__(self, traced: TracedModel, options: CollectOptions, ranks: Ranks, work: Work, meter: Meter) -> None:
        self._traced, self._options, self._ranks, self._work, self.meter = traced, options, ranks, work, meter
        self._vllm = use_vllm(options.engine, ranks.count)
        self._tokens = work.read_tokens()
        self._model: Any = None
        self._recorder: RoutingRecorder | None = None
        self.packed: bool | None = None

    def rounds(self, groups: Sequence[list[Request]]) -> Iterator[list[list[Request]]]:
        """Groups that are generated, traced and put away together; all of them where vLLM has to leave first."""
        size = len(groups) if self._vllm else -(-_ROUND // self._options.batch)
        for start in range(0, len(groups), max(size, 1)):
            yield list(groups[start : start + size])

    def trace(self, requests: Sequence[Request]) -> Iterator[RequestTrace]:
        """Pass 2 for one batch. Only its own sequences are packed together: rounding depends on nothing else."""
        recorder = self._load_recorder()
        # The last token is produced, but in serving no step reads it: it has no routing.
        sequences = [(*request.prompt, *self._tokens[request.identifier][:-1]) for request in requests]
        for chosen in packs([len(sequence) for sequence in sequences], self._options.pack_tokens, bool(self.packed)):
            self.meter.tell("tracing")
            recorded = recorder.record([sequences[index] for index in chosen], bool(self.packed))
            self.meter.add((1 - _GENERATED) * len(chosen))
            for index, routing in zip(chosen, recorded, strict=True):
                yield _request_trace(requests[index], sequences[index], routing)

    def generate(self, groups: Sequence[list[Request]]) -> None:
        """Pass 1 for some batches; their tokens are on the disk when this returns."""
        missing = [[r for r in group if r.identifier not in self._tokens] for group in groups]
        missing = [group for group in missing if group]
        self.meter.add(_GENERATED * (sum(map(len, groups)) - sum(map(len, missing))))
        if not missing:
            return
        generator = self._generator()
        if generator.whole:
            flat = [request for group in missing for request in group]
            missing = [flat[start : start + _WHOLE] for start in range(0, len(flat), _WHOLE)]
        for group in missing:
            self.meter.tell("generating")
            made = generator.generate(group, self._on_step)
            tokens = {request.identifier: ids for request, ids in zip(group, made, strict=True)}
            self._work.write_tokens(tokens)
            self._tokens |= tokens
            self.meter.add(_GENERATED * len(group), sum(map(len, made)))
        generator.close()

    def _on_step(self, done: float, tokens: int) -> None:
        self.meter.tell("generating", _GENERATED * done, tokens)

    def _generator(self) -> Generator:
        if self._vllm:
            return VllmGenerator(self._traced.location, self._traced.end_tokens(), self._options)
        return BatchedGenerator(self._load(), self._traced.end_tokens(), self._options)

    def _load(self) -> Any:
        if self._model is None:
            self._model = self._traced.load(self._ranks.device)
        return self._model

    def _load_recorder(self) -> RoutingRecorder:
        if self._recorder is None:
            model, family = self._load(), self._traced.family
            self._recorder = RoutingRecorder(model, family, self._options.early)
            self.packed = isolates(model, family)
            if not self.packed:
                log.warning("%s: sequences are traced in rows of their own, for packed ones would mix", family.name)
        return self._recorder


def _request_trace(request: Request, sequence: Sequence[int], routing: SequenceRouting) -> RequestTrace:
    phase = np.full(len(sequence), DECODE, dtype=np.uint8)
    phase[: len(request.prompt)] = PREFILL
    return RequestTrace(
        routing.experts, phase, routing.weights, routing.logits, np.array(sequence, dtype=np.int32), routing.early,
        prompt_length=len(request.prompt), dataset=request.dataset, identifier=request.identifier,
        group=request.group,
    )  # fmt: skip


def _bytes(traced: TracedModel) -> int:
    """Bytes of one expert in the checkpoint's own type; a quantised one (scales, packing) is not counted: 0."""
    if getattr(traced.config, "quantization_config", None):
        return 0
    width = getattr(traced.config.dtype, "itemsize", 4)
    return traced.family.shape(traced.config).expert_bytes // 4 * width
