"""The token clock: submits prompts, stamps each token as it arrives, and holds every system to the same count."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from baselines._shared.protocol import Events, Refusal, Request


@dataclass(frozen=True)
class Token:
    """One emitted token: its id (None if hidden) and when it arrived (time.perf_counter_ns)."""

    identifier: int | None
    time_ns: int


Generate = Callable[[Sequence[int], int], Iterable[Token]]


def run_prompts(request: Request, events: Events, generate: Generate) -> None:
    """Warm up with the first prompt, then decode all, ``request.batch`` at a time, and report every token.

    ``generate(prompt, decode_tokens)`` yields tokens as they arrive. A system that emits another number of tokens than
    asked for is refused as invalid: its throughput could not be compared.
    """
    if request.warmup:
        for _ in generate(request.prompts[0], request.decode_tokens):
            pass
    numbered = list(enumerate(request.prompts))
    with ThreadPoolExecutor(request.batch) as pool:
        for start in range(0, len(numbered), request.batch):
            group = numbered[start : start + request.batch]
            list(pool.map(lambda item: _measure(request, events, generate, *item), group))


def _measure(request: Request, events: Events, generate: Generate, index: int, prompt: Sequence[int]) -> None:
    count = 0
    events.request(index, time.perf_counter_ns())
    for token in generate(prompt, request.decode_tokens):
        events.token(index, token.identifier, token.time_ns)
        count += 1
    if count != request.decode_tokens:
        raise Refusal("invalid", f"prompt {index}: {count} tokens came where {request.decode_tokens} were asked for")
