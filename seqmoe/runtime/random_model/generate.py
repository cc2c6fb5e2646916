"""One request through one system on random weights: `seqmoe generate --config NAME --weights random`."""

from __future__ import annotations

from dataclasses import replace

import torch

from seqmoe.runtime.meter import DecodeMeter
from seqmoe.runtime.random_model.engine import RandomEngine
from seqmoe.runtime.random_model.opened import Opened, RandomModel
from seqmoe.runtime.replay_generate import first_of_length
from seqmoe.runtime.replay_runner import predictor_of
from seqmoe.runtime.retention import Offline
from seqmoe.runtime.stream import GenerateResult
from seqmoe.spec.answer import tokens_sha256
from seqmoe.spec.errors import InputError
from seqmoe.spec.suite import random_label
from seqmoe.spec.system import SystemSpec


def random_generate(
    random: RandomModel, spec: SystemSpec, residency: float, tokens: int, threads: int = 1
) -> GenerateResult:
    """Decode the first request of the traces that is long enough, at this host's own speed.

    Raises `InputError` for traces, residencies and predictors that do not fit, `OutOfMemoryError` with the sum where
    the model does not; both before anything is allocated.
    """
    torch.set_num_threads(threads)
    opened = Opened.of(random)
    chosen = first_of_length(opened.traces, random.traces, tokens)
    opened = replace(opened, random=replace(random, requests=(chosen,)))
    opened.check_memory(spec, residency, 1, tokens)
    engine = RandomEngine(opened)
    try:
        predictor = predictor_of(spec, random.predictor, engine)
        engine.place(spec, residency, predictor, None, Offline())
        (prompt,) = engine.prompts((chosen,), tokens)
        engine.timers.clear()
        meter = DecodeMeter(engine)
        found = engine.generate(list(prompt), tokens, on_token=meter)
        meter.prompt_done()
        totals, hit_rate = meter.statistics(None), meter.hit_rate
        breakdown = {"decode_seconds": found.decode_seconds} | engine.timers.breakdown().as_dict()
    except ValueError as error:
        raise InputError(str(error)) from None
    finally:
        engine.close()
    return GenerateResult(
        system=spec.name,
        residency=1.0 if spec.retention == "all" else residency,
        lane="measured",
        tokens=found.tokens,
        text="",
        sha256=tokens_sha256(found.tokens),
        ttft_s=found.ttft_seconds,
        decode_tok_s=found.decode_tok_s,
        hit_rate=hit_rate,
        bytes={name[6:]: value for name, value in totals.items() if name.startswith("bytes_")}
        | {"prefill": totals["prefill_bytes"], "resident": totals["resident_bytes"]},
        breakdown=breakdown | {"stall_seconds": totals["stall_seconds"]},
        origin=random_label(random.layers),
    )
