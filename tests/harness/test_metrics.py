"""Metrics say what the definitions say, on streams whose answer can be counted by hand, and hold their invariants."""

from __future__ import annotations

import hashlib
import struct

import pytest
from harness_samples import record, timed

from seqmoe.harness import metrics
from seqmoe.harness.metrics import Missing
from seqmoe.harness.record import PromptObservation, Status
from seqmoe.spec import answer


def test_decode_throughput_counts_tokens_after_the_first_over_their_own_time() -> None:
    # 4 gaps in 20 + 40 ms of the first prompt, 4 in 100 of the second: waiting and first tokens do not count
    observed = [timed([5, 5, 5, 5], ttft_ms=300), timed([25, 25, 25, 25], ttft_ms=7, start_ms=5000)]
    assert metrics.decode_tok_s(record(observed)) == pytest.approx(8 / 0.120)


def test_a_batch_shares_one_interval() -> None:
    together = [timed([10, 10, 10], start_ms=0), timed([10, 10, 10], start_ms=5)]
    assert metrics.decode_tok_s(record(together, batch=2)) == pytest.approx(6 / 0.035)
    assert metrics.decode_tok_s(record(together, batch=1)) == pytest.approx(6 / 0.060)


def test_time_to_first_token_is_the_median_over_prompts() -> None:
    observed = [timed([1], ttft_ms=ms) for ms in (10, 90, 30)]
    assert metrics.ttft_s(record(observed)) == pytest.approx(0.030)


def test_inter_token_latency_percentiles_are_of_all_gaps_together() -> None:
    observed = [timed([1, 2]), timed([3, 4])]
    assert metrics.itl_s(record(observed)) == pytest.approx(0.0025)
    assert metrics.itl_s(record(observed), 100) == pytest.approx(0.004)


def test_the_hash_is_of_the_ids_as_little_endian_int32_in_prompt_order() -> None:
    observed = [timed([1, 1], tokens=[7, 70_000, 3]), timed([1, 1], tokens=[0, 1, 2])]
    expected = hashlib.sha256(b"".join(struct.pack("<i", t) for t in (7, 70_000, 3, 0, 1, 2))).hexdigest()
    assert metrics.tokens_sha256(record(observed)) == expected
    assert answer.tokens_sha256([7, 70_000, 3, 0, 1, 2]) == expected


def test_hidden_tokens_have_no_hash() -> None:
    hidden = PromptObservation(0, (1, 2), (5, None))
    assert isinstance(metrics.tokens_sha256(record([hidden])), Missing)


def test_hit_rate_is_counted_where_counts_exist_and_taken_as_told_otherwise() -> None:
    assert metrics.hit_rate(record(stats={"needed": 8, "hits": 6, "hit_rate": 0.1})) == 0.75
    assert metrics.hit_rate(record(stats={"hit_rate": 0.4})) == 0.4


def test_without_a_counted_event_only_full_load_has_a_hit_rate() -> None:
    nothing = {"needed": 0, "hits": 0, "hit_rate": 1.0}
    assert metrics.hit_rate(record(stats=nothing)) == Missing("no decode step was counted")
    assert metrics.hit_rate(record(stats=nothing, system="full", residency=1.0)) == 1.0


def test_a_system_without_a_hit_rate_is_missing_with_its_reason_and_never_zero() -> None:
    assert metrics.hit_rate(record(stats={"hit_rate": {"missing": "no counter"}})) == Missing("no counter")
    assert metrics.hit_rate(record()) == Missing("the system does not report hit_rate")


def test_bytes_are_told_per_token_that_decoding_made() -> None:
    # the first token of each prompt is prefill's, whose bytes are counted apart
    stats = {"bytes_on_demand": 600, "bytes_late": 60, "bytes_wasted": "many", "prefill_bytes": 9999}
    item = record([timed([1, 1, 1]), timed([1, 1, 1])], stats=stats)
    assert metrics.bytes_per_output_token(item, "on_demand") == 100
    assert metrics.bytes_per_output_token(item, "late") == 10
    assert isinstance(metrics.bytes_per_output_token(record([timed([])], stats=stats), "on_demand"), Missing)
    assert isinstance(metrics.bytes_per_output_token(item, "prefetched"), Missing)
    assert isinstance(metrics.bytes_per_output_token(item, "wasted"), Missing)


def test_routing_diversity_is_passed_on() -> None:
    assert metrics.distinct_experts_per_layer(record(stats={"distinct_experts_per_layer": 31.5})) == 31.5


@pytest.mark.parametrize(
    "metric",
    [metrics.decode_tok_s, metrics.ttft_s, metrics.itl_s, metrics.hit_rate, metrics.tokens_sha256],
)
def test_a_failed_run_has_no_figures_only_its_status(metric) -> None:
    failed = record(stats={"hit_rate": 0.5}, status=Status("invalid", "no byte crossed the link"))
    assert metric(failed) == Missing("invalid(no byte crossed the link)")


def test_one_token_has_a_first_token_time_but_no_rate() -> None:
    single = record([timed([])])
    assert metrics.ttft_s(single) == pytest.approx(0.01)
    assert all(isinstance(f(single), Missing) for f in (metrics.decode_tok_s, metrics.itl_s))
