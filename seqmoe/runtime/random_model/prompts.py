"""Requests of traces as prompts of a model on random weights, and what its routers are to choose after them."""

from __future__ import annotations

import numpy as np

from seqmoe.runtime.random_model.opened import Opened
from seqmoe.runtime.random_model.routing import Replay
from seqmoe.runtime.replayed import check_length, prompt_steps, trace_weights
from seqmoe.spec.errors import InputError

Prompt = tuple[int, ...]


def prompt_of(opened: Opened, index: int, tokens: int) -> tuple[Prompt, Replay]:
    """Request ``index`` of the traces, to be continued by ``tokens`` tokens.

    Its token ids mean nothing to random weights and are drawn by the request's number. Raises `InputError` for a
    request that is not there, ``ValueError`` for one that is too short.
    """
    traces = opened.traces
    if not 0 <= index < len(traces.requests):
        raise InputError(f"request {index}: the traces have {len(traces.requests)}")
    request = traces.requests[index]
    prompt = prompt_steps(request)
    check_length(request, tokens, prompt)
    ids = np.random.default_rng([index]).integers(0, opened.checkpoint.config.vocab_size, prompt)
    weights = trace_weights(request, traces.experts, traces.router)
    return tuple(ids.tolist()), Replay(request.experts, weights, prompt)
