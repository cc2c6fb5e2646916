"""When a run is steady, and what its cold and its steady part gave, on streams that can be counted by hand."""

from __future__ import annotations

import pytest
from harness_samples import record, timed

from seqmoe.harness import steady
from seqmoe.harness.metrics import Missing
from seqmoe.harness.record import Status


def windows(*rates: tuple[int, int], steps: int = 4) -> dict:
    return {"windows": {"steps": steps, "needed": [n for n, _ in rates], "hits": [h for _, h in rates]}}


def test_the_second_of_two_windows_that_agree_is_the_first_steady_one():
    run = record([timed([20] * 4 + [10] * 4 + [10] * 4 + [10] * 4)], stats=windows((8, 2), (8, 6), (8, 6), (8, 7)))
    found = steady.settled(run)
    assert [len(part) for part in (found.cold, found.steady)] == [2, 2]
    assert steady.cold_decode_tok_s(run) == pytest.approx(8 / 0.12)
    assert steady.steady_decode_tok_s(run) == pytest.approx(8 / 0.08)
    assert steady.cold_hit_rate(run) == 8 / 16
    assert steady.steady_hit_rate(run) == 13 / 16


def test_latency_that_agrees_is_not_enough_where_the_hit_rate_still_rises():
    run = record([timed([10] * 12)], stats=windows((10, 2), (10, 4), (10, 8)))
    assert steady.settled(run).steady == ()
    assert steady.steady_decode_tok_s(run) == Missing("no two windows in a row agree within 5 %")
    assert steady.cold_decode_tok_s(run) == pytest.approx(100)


def test_without_hit_rates_by_window_latency_decides():
    run = record([timed([20] * 16 + [10] * 32)])
    assert [window.itl_s for window in steady.settled(run).cold] == pytest.approx([0.02, 0.01])
    assert steady.steady_decode_tok_s(run) == pytest.approx(100)
    assert isinstance(steady.steady_hit_rate(run), Missing)


def test_a_window_never_spans_two_prompts():
    # 6 gaps each: one window of 4, the other two gaps belong to none.
    run = record([timed([10] * 4 + [99] * 2), timed([10] * 4 + [99] * 2, start_ms=5000)], stats=windows())
    found = steady.settled(run)
    assert [window.seconds for window in (*found.cold, *found.steady)] == pytest.approx([0.04, 0.04])


def test_a_batch_ends_its_steps_together():
    together = [timed([10] * 8), timed([10] * 7 + [12])]
    run = record(together, batch=2, stats=windows())
    assert steady.steady_decode_tok_s(run) == pytest.approx(8 / 0.042)


def test_one_slow_gap_does_not_make_a_window_disagree():
    run = record([timed([10] * 4 + [10, 10, 10, 500])], stats=windows())
    assert len(steady.settled(run).steady) == 1


def test_too_short_a_run_and_a_failed_one_are_missing():
    assert steady.settled(record([timed([10] * 5)], stats=windows())) == Missing(
        "1 whole windows of 4 decode steps; two are needed"
    )
    assert steady.steady_decode_tok_s(record(status=Status("crash", "x"))) == Missing("crash(x)")


def test_the_warm_up_is_kept_apart():
    run = record(stats={"warmup": {"decode_tok_s": 7.5, "hit_rate": None}})
    assert steady.warm_up(run, "decode_tok_s") == 7.5
    assert isinstance(steady.warm_up(run, "hit_rate"), Missing)
    assert isinstance(steady.warm_up(record(), "decode_tok_s"), Missing)


def test_gaps_that_stand_out_are_named_and_usual_spread_is_not():
    usual = [10, 11, 12, 11, 10, 11, 12, 10]
    assert steady.outlier_note([record([timed(usual)])]) == ""
    noisy = record([timed([*usual, 80, 40])])
    assert steady.outlying_gaps(noisy) == pytest.approx((0.08, 0.04))
    assert steady.outlier_note([record([timed(usual)]), noisy]) == "2 of 18 gaps stand out, the longest 80 ms"
    # Equal gaps have no spread: a nanosecond more is no outlier.
    assert steady.outlying_gaps(record([timed([10] * 9 + [10.1])])) == ()
