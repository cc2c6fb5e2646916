"""What must hold of a load test, and by how much two sides may differ.

Counts must be equal. Times and rates are taken by two clocks at two places, so they may differ by what lies between:

- **durations**: a client's clock runs while the request and the answer are on their way and its thread waits for its
  turn: 5 % and 50 ms. The times to the last token are of the same requests on both sides; the times to the first are
  of those that stream on one and of all on the other, so three standard errors of the mean come on top.
- **throughput** in one time: 2 %, and what a batch of the longest answers holds: a client counts an answer's tokens
  when the answer ends, the server each when it is made. The server's gauge looks back ten seconds: 5 % instead of 2.
- **GuideLLM** streams everything, so its times to the first token are of the server's requests: 5 % and 50 ms; all of
  its answers lie in the time its rate is of, which cuts the server's steps apart at both ends: 5 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from seqmoe.harness.load.guidellm import Compared
from seqmoe.harness.load.run import Load, Outcome
from seqmoe.harness.load.watch import RATE_SECONDS, mean_rate

GROWTH = 0.02
_SHARE, _SECONDS = 0.05, 0.05
_RATE_SHARE, _GAUGE_SHARE, _GUIDELLM_SHARE = 0.02, 0.05, 0.05
_SHOWN = 3
_KNOWN = ("stop", "length", "refused_full")
# Below, too few of its samples look back on nothing but full load.
_GAUGE_TIMES = 3


def faults(outcome: Outcome) -> list[str]:
    """Everything that does not hold, worded for people; an empty list is a pass."""
    found = [*_answers(outcome.load), *_counts(outcome.load), *_memory(outcome.load), *_times(outcome.load)]
    if isinstance(outcome.guidellm, Compared):
        found += _guidellm(outcome.guidellm)
    return [*found, *outcome.ending.faults(), *outcome.complaints]


def _answers(load: Load) -> Iterator[str]:
    tally = load.tally
    if not tally.answers:
        yield "answers: there were none"
    for answer in load.wrong[:_SHOWN]:
        alone = load.expected[answer.question].text
        yield f"answers: question {answer.question} got {answer.text!r}; alone it gets {alone!r}"
    if len(load.wrong) > _SHOWN:
        yield f"answers: {len(load.wrong)} of {len(tally.answers)} differ from those computed alone"
    for error in tally.errors[:_SHOWN]:
        yield f"errors: {error}"
    if len(tally.errors) > _SHOWN:
        yield f"errors: {len(tally.errors)} requests failed"
    if tally.refused:
        yield f"429: {tally.refused} requests were refused though the queue has a place for each client"


def _counts(load: Load) -> Iterator[str]:
    answers, counted = load.tally.answers, load.counted
    sides = (
        ("requests", len(answers), counted.answered),
        ("tokens", sum(answer.tokens for answer in answers), counted.tokens),
        ("tokens of prompts", sum(answer.prompt_tokens for answer in answers), counted.prompt_tokens),
        ("429 answers", load.tally.refused, counted.requests.get("refused_full", 0)),
    )
    for name, clients, server in sides:
        if clients != server:
            yield f"{name}: clients count {clients}, /metrics {server:g}"
    other = {name: count for name, count in counted.requests.items() if count and name not in _KNOWN}
    if sum(other.values()) > len(load.tally.errors):
        yield f"requests: /metrics counts {other}, clients {len(load.tally.errors)} errors"


def _memory(load: Load) -> Iterator[str]:
    before, after = load.resident
    if after > before * (1 + GROWTH):
        yield f"memory: grew by {after / before - 1:.1%} after the warm-up, {before:,} to {after:,} bytes"


def _times(load: Load) -> Iterator[str]:
    answers = load.tally.answers
    if len(load.ttfts) < 2 or not load.server_tok_s:
        yield "times: too few answers were streamed to tell"
        return
    lasted = statistics.fmean(answer.ended - answer.began for answer in answers)
    yield from _apart(
        "mean time to the last token", lasted, load.counted.lasted.mean, _seconds(load.counted.lasted.mean)
    )
    noise = 3 * statistics.stdev(load.ttfts) / math.sqrt(len(load.ttfts))
    server = load.counted.ttft.mean
    yield from _apart("mean TTFT", statistics.fmean(load.ttfts), server, _seconds(server) + noise)
    batch = load.plan.batch * load.plan.longest / (load.ended - load.warm)
    allowed = _RATE_SHARE * load.server_tok_s + batch
    yield from _apart("throughput", load.tok_s, load.server_tok_s, allowed, "tok/s")
    gauge = mean_rate(load.samples, load.warm, load.ended)
    if gauge is not None and load.ended - load.warm >= _GAUGE_TIMES * RATE_SECONDS:
        allowed = _GAUGE_SHARE * load.server_tok_s + batch
        yield from _apart("throughput beside seqmoe_tokens_per_second", load.tok_s, gauge, allowed, "tok/s")


def _guidellm(told: Compared) -> Iterator[str]:
    if told.errors:
        yield f"GuideLLM: {told.errors} requests failed"
    for name, theirs, ours in (
        ("requests", told.requests, told.server_requests),
        ("tokens", told.tokens, told.server_tokens),
    ):
        if theirs != ours:
            yield f"GuideLLM: counts {theirs} {name}, /metrics {ours}"
    yield from _apart("mean TTFT", told.ttft, told.server_ttft, _seconds(told.server_ttft), by="GuideLLM")
    rate = told.server_tok_s
    yield from _apart("throughput", told.tok_s, rate, _GUIDELLM_SHARE * rate, "tok/s", by="GuideLLM")


def _seconds(server: float) -> float:
    return _SHARE * server + _SECONDS


def _apart(
    name: str, clients: float, server: float, allowed: float, unit: str = "s", by: str = "clients"
) -> Sequence[str]:
    if abs(clients - server) <= allowed:
        return []
    return [f"{name}: {by} {clients:.3f} {unit}, the server {server:.3f}; more than {allowed:.3f} apart"]
