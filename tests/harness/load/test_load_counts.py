"""Protects the reading of /metrics: it is what the server's own registry holds, and differences are of a time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

pytest.importorskip("prometheus_client", reason="serve needs its extra")

from seqmoe.harness.load.counts import Counts, parse_counts
from seqmoe.harness.load.watch import Sample, growth, mean_rate, tokens_between
from seqmoe.serve.metrics import Metrics
from seqmoe.serve.snapshot import Snapshot


@pytest.fixture
def metrics():
    return Metrics(lambda: Snapshot(running=2, waiting=3, tok_s=7.5))


def _counts(metrics: Metrics) -> Counts:
    return parse_counts(metrics.text().decode())


def test_what_was_counted_since_is_read(metrics):
    metrics.tokens.inc(5)
    metrics.requests.labels("stop").inc()
    metrics.ttft.observe(100)
    before = _counts(metrics)
    metrics.tokens.inc(12)
    metrics.prompt_tokens.inc(30)
    metrics.requests.labels("stop").inc()
    metrics.requests.labels("length").inc(2)
    metrics.requests.labels("cancelled").inc()
    for seconds in (0.3, 0.3, 0.7):
        metrics.ttft.observe(seconds)
    since = _counts(metrics).since(before)
    assert (since.tokens, since.prompt_tokens, since.answered) == (12, 30, 3)
    assert since.requests == {"stop": 1, "length": 2, "cancelled": 1}
    assert since.ttft.count == 3 and since.ttft.mean == pytest.approx(1.3 / 3)
    assert (since.busy, since.tok_s) == (5, 7.5)


def test_a_median_lies_in_its_bucket(metrics):
    assert math.isnan(_counts(metrics).ttft.median) and math.isnan(_counts(metrics).ttft.mean)
    for seconds in (0.03, 0.3, 0.3, 3.0):
        metrics.ttft.observe(seconds)
    # The second of four: half of the two in (0.2, 0.5].
    assert _counts(metrics).ttft.median == pytest.approx(0.35)
    for _ in range(9):
        metrics.ttft.observe(1000)
    assert _counts(metrics).ttft.median == 200  # beyond the last bound nothing is known


def test_a_page_without_a_metric_is_no_zero(metrics):
    text = "\n".join(line for line in metrics.text().decode().splitlines() if "generated_tokens" not in line)
    with pytest.raises(ValueError, match="has no seqmoe_generated_tokens_total"):
        parse_counts(text + "\n")


def test_tokens_and_rates_are_of_the_time_that_is_asked_for(metrics):
    empty = _counts(metrics)
    samples = [Sample(float(at), 1000 + at, replace(empty, tokens=100.0 * at, tok_s=float(at))) for at in range(40)]
    assert tokens_between(samples, 10.5, 20.25) == pytest.approx(975)
    assert mean_rate(samples, 10, 22) == 21  # looks back on nothing before 10
    assert mean_rate(samples, 10, 19) is None
    assert growth(samples, 10, 30) == (1012, 1028)
    with pytest.raises(RuntimeError, match="measure for longer"):
        growth(samples, 10.1, 11.9)
