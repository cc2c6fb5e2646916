"""Metrics: pure functions of one record. What a record cannot tell is `Missing` with the reason, never a zero."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmoe.harness.record import PromptObservation, Record

BYTES = ("on_demand", "prefetched", "wasted")
_PEAK_GAPS = 16


@dataclass(frozen=True, slots=True)
class Missing:
    """A figure that does not exist, and why."""

    reason: str

    def __str__(self) -> str:
        return f"missing({self.reason})"


def decode_tok_s(record: Record) -> float | Missing:
    """Decode throughput: tokens after each prompt's first, over the time from first to last token.

    Prompts that run together (a batch) share one interval; intervals of successive batches add up.
    """
    if not record.status.ok:
        return _failed(record)
    tokens, seconds = 0, 0.0
    for group in _groups(record):
        tokens += sum(len(prompt.token_ns) - 1 for prompt in group)
        seconds += _span(group)
    return tokens / seconds if seconds > 0 else Missing("no two tokens were emitted at different times")


def peak_tok_s(record: Record, gaps: int = _PEAK_GAPS) -> float | Missing:
    """The fastest stretch of at least ``gaps`` tokens; tokens are counted, so that it is never below the mean."""
    if not record.status.ok:
        return _failed(record)
    peak = 0.0
    for group in _groups(record):
        times = np.sort(np.concatenate([np.asarray(prompt.token_ns, dtype=np.int64) for prompt in group]))
        shortest = min(max(gaps, 2 * len(group)), len(times) - 1)
        # Longer stretches fall into stretches of these lengths, one of which is at least as fast.
        for length in range(max(shortest, 1), min(2 * shortest, len(times))):
            seconds = float((times[length:] - times[:-length]).min()) / 1e9
            if seconds == 0:
                return Missing(f"{length + 1} tokens carry one time stamp: the system does not stream token by token")
            peak = max(peak, length / seconds)
    return peak if peak > 0 else Missing("every prompt emitted a single token")


def ttft_s(record: Record) -> float | Missing:
    """Time to first token, seconds: median over the prompts."""
    if not record.status.ok:
        return _failed(record)
    return float(np.median([(p.token_ns[0] - p.request_ns) / 1e9 for p in record.observations.prompts]))


def itl_s(record: Record, percentile: float = 50.0) -> float | Missing:
    """Inter-token latency, seconds: a percentile over the gaps of all prompts."""
    if not record.status.ok:
        return _failed(record)
    gaps = [np.diff(np.asarray(p.token_ns, dtype=np.int64)) for p in record.observations.prompts]
    pooled: NDArray[np.int64] = np.concatenate(gaps)
    if not pooled.size:
        return Missing("every prompt emitted a single token")
    return float(np.percentile(pooled, percentile)) / 1e9


def hit_rate(record: Record) -> float | Missing:
    """Expert hit rate: needed experts that were resident when their event started, over distinct experts needed."""
    needed, hits = stat(record, "needed"), stat(record, "hits")
    if not isinstance(needed, Missing) and not isinstance(hits, Missing) and needed > 0:
        return hits / needed
    return stat(record, "hit_rate")


def tokens_sha256(record: Record) -> str | Missing:
    """SHA-256 over the greedy token ids of all prompts, in order, as little-endian int32."""
    if not record.status.ok:
        return _failed(record)
    identifiers = [token for prompt in record.observations.prompts for token in prompt.tokens]
    known = [token for token in identifiers if token is not None]
    if len(known) != len(identifiers):
        return Missing("the system does not tell its token ids")
    return hash_tokens(known)


def hash_tokens(tokens: Iterable[int]) -> str:
    """SHA-256 of token ids as little-endian int32."""
    return hashlib.sha256(np.asarray(list(tokens), dtype="<i4").tobytes()).hexdigest()


def bytes_per_output_token(record: Record, kind: str) -> float | Missing:
    """Expert bytes over the link per output token; ``kind`` is on_demand, prefetched or wasted (part of prefetched)."""
    moved = stat(record, f"bytes_{kind}")
    tokens = sum(len(prompt.tokens) for prompt in record.observations.prompts)
    if isinstance(moved, Missing):
        return moved
    return moved / tokens if tokens else Missing("no tokens were emitted")


def distinct_experts_per_layer(record: Record) -> float | Missing:
    """Routing diversity: distinct experts that a request used in a layer, mean over layers and requests."""
    return stat(record, "distinct_experts_per_layer")


def stat(record: Record, name: str) -> float | Missing:
    """A number that the system told of itself; `Missing` with its own reason where it cannot tell."""
    if not record.status.ok:
        return _failed(record)
    value = record.observations.stats.get(name)
    if value is None:
        return Missing(f"the system does not report {name}")
    if isinstance(value, dict) and set(value) == {"missing"}:
        return Missing(str(value["missing"]))
    if isinstance(value, (int, float)):
        return float(value)
    return Missing(f"{name} is not a number")


def _failed(record: Record) -> Missing:
    return Missing(str(record.status))


def _groups(record: Record) -> Iterator[tuple[PromptObservation, ...]]:
    """Prompts that were decoded together: ``batch`` at a time, in order."""
    prompts, batch = record.observations.prompts, record.cell.batch
    for start in range(0, len(prompts), batch):
        yield prompts[start : start + batch]


def _span(group: Iterable[PromptObservation]) -> float:
    """Seconds from the first to the last token of prompts that run together."""
    prompts = list(group)
    return (max(p.token_ns[-1] for p in prompts) - min(p.token_ns[0] for p in prompts)) / 1e9
