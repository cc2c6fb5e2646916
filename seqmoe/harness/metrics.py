"""Metrics: pure functions of one record. What a record cannot tell is `Missing` with the reason, never a zero."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmoe.harness.record import PromptObservation, Record
from seqmoe.spec import answer
from seqmoe.spec.system import SYSTEMS

BYTES = ("on_demand", "prefetched", "wasted", "late")


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


def ttft_s(record: Record) -> float | Missing:
    """Time to first token, seconds: median over the prompts. Of an emulated record only decoding is paced."""
    if not record.status.ok:
        return _failed(record)
    if record.cell.lane == "emulated":
        return Missing("an emulated prompt is computed at this host's speed")
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
    """Expert hit rate: needed experts that were resident when their event started, over distinct experts needed.

    Full load has no events to count; its rate is the one that it reports.
    """
    needed, hits = stat(record, "needed"), stat(record, "hits")
    if isinstance(needed, Missing) or isinstance(hits, Missing) or _holds_everything(record):
        return stat(record, "hit_rate")
    return hits / needed if needed > 0 else Missing("no decode step was counted")


def tokens_sha256(record: Record) -> str | Missing:
    """SHA-256 over the greedy token ids of all prompts, in order, as little-endian int32."""
    if not record.status.ok:
        return _failed(record)
    identifiers = [token for prompt in record.observations.prompts for token in prompt.tokens]
    known = [token for token in identifiers if token is not None]
    if len(known) != len(identifiers):
        return Missing("the system does not tell its token ids")
    return answer.tokens_sha256(known)


def bytes_per_output_token(record: Record, kind: str) -> float | Missing:
    """Expert bytes over the link per decoded token; ``kind`` is one of `BYTES`, wasted and late are part of prefetched.

    Systems count the bytes of decoding, which begins after the first token of each prompt.
    """
    moved = stat(record, f"bytes_{kind}")
    tokens = sum(len(prompt.tokens) - 1 for prompt in record.observations.prompts)
    if isinstance(moved, Missing):
        return moved
    return moved / tokens if tokens else Missing("every prompt emitted a single token")


def stall_share(record: Record) -> float | Missing:
    """Share of the decode time in which inference waited for experts."""
    stalled, groups = stat(record, "stall_seconds"), list(_groups(record))
    seconds = sum(_span(group) for group in groups)
    if isinstance(stalled, Missing):
        return stalled
    return stalled / seconds if seconds > 0 else Missing("no two tokens were emitted at different times")


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


def _holds_everything(record: Record) -> bool:
    spec = SYSTEMS.get(record.cell.system)
    return spec is not None and spec.retention == "all"


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
