"""What the server counts: its `/metrics`, read as Prometheus reads them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

_PAUSE_SECONDS = 0.3
_SETTLED_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Observed:
    """A histogram: the sum in seconds, the number, and how many were at most so long, by bound in seconds."""

    total: float
    count: float
    at_most: Mapping[float, float]

    @property
    def mean(self) -> float:
        """In seconds; nan of none."""
        return self.total / self.count if self.count else math.nan

    @property
    def median(self) -> float:
        """In seconds, within its bucket as if all of it were equally likely; nan of none."""
        below, least = 0.0, 0.0
        for bound, count in sorted(self.at_most.items()):
            if count >= self.count / 2 and count > below:
                return (
                    least if math.isinf(bound) else least + (bound - least) * (self.count / 2 - below) / (count - below)
                )
            below, least = count, bound
        return math.nan

    def since(self, before: Observed) -> Observed:
        """What was observed after ``before``."""
        at_most = {bound: count - before.at_most.get(bound, 0) for bound, count in self.at_most.items()}
        return Observed(self.total - before.total, self.count - before.count, at_most)


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests by how they ended, tokens, times to the first token and to the last; and the present, as gauges.

    ``tok_s`` is the server's own throughput of the last ten seconds; ``busy`` requests run or wait.
    """

    requests: Mapping[str, float]
    prompt_tokens: float
    tokens: float
    ttft: Observed
    lasted: Observed
    tok_s: float
    busy: float

    @property
    def answered(self) -> int:
        """Requests that got a whole answer."""
        return int(self.requests.get("stop", 0) + self.requests.get("length", 0))

    def since(self, before: Counts) -> Counts:
        """What was counted after ``before``; gauges stay."""
        requests = {outcome: count - before.requests.get(outcome, 0) for outcome, count in self.requests.items()}
        return Counts(
            requests,
            self.prompt_tokens - before.prompt_tokens,
            self.tokens - before.tokens,
            self.ttft.since(before.ttft),
            self.lasted.since(before.lasted),
            self.tok_s,
            self.busy,
        )


def parse_counts(text: str) -> Counts:
    """Read Prometheus' text format; ``ValueError`` where a metric is missing."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    plain = {sample.name: sample.value for sample in samples if not sample.labels}
    try:
        return Counts(
            {each.labels["outcome"]: each.value for each in samples if each.name == "seqmoe_requests_total"},
            plain["seqmoe_prompt_tokens_total"],
            plain["seqmoe_generated_tokens_total"],
            _observed("seqmoe_time_to_first_token_seconds", plain, samples),
            _observed("seqmoe_request_seconds", plain, samples),
            plain["seqmoe_tokens_per_second"],
            plain["seqmoe_running_requests"] + plain["seqmoe_queue_depth"],
        )
    except KeyError as error:
        raise ValueError(f"/metrics: has no {error.args[0]}") from None


def read_counts(url: str) -> Counts:
    """Ask the server at ``url``; ``httpx.HTTPError`` where it does not answer."""
    answer = httpx.get(f"{url}/metrics", timeout=30, trust_env=False)
    answer.raise_for_status()
    return parse_counts(answer.text)


def settled_counts(url: str) -> Counts:
    """Wait until nothing runs and two readings are equal: a client can have its answer before the step is counted.

    `RuntimeError` where something still runs after half a minute.
    """
    end = time.monotonic() + _SETTLED_SECONDS
    before = read_counts(url)
    while time.monotonic() < end:
        time.sleep(_PAUSE_SECONDS)
        now = read_counts(url)
        if now.busy == 0 and (now.requests, now.tokens) == (before.requests, before.tokens):
            return now
        before = now
    raise RuntimeError(f"{before.busy:g} requests still run or wait {_SETTLED_SECONDS:g} s after the last was answered")


def _observed(name: str, plain: Mapping[str, float], samples: Iterable[Sample]) -> Observed:
    at_most = {float(each.labels["le"]): each.value for each in samples if each.name == f"{name}_bucket"}
    return Observed(plain[f"{name}_sum"], plain[f"{name}_count"], at_most)
