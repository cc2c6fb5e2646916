"""Dilated time: a layer lasts its stretched time and the stall, what is late is counted, times are given back."""

from __future__ import annotations

import time

import numpy as np
import pytest

from seqmoe.runtime import emulation
from seqmoe.runtime.emulation import LADDER, Emulation, LayerPacer, decoding, larger_factor, smallest_factor
from seqmoe.spec.pace import Pace

PACE = Pace(layer_seconds=170e-6, expert_seconds=189e-6)


class Clock:
    """A clock that only moves when somebody works or sleeps on it."""

    def __init__(self) -> None:
        self.now = 0

    def perf_counter_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(1e9 * seconds)

    def work(self, seconds: float) -> None:
        self.sleep(seconds)


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(emulation, "time", found)
    # What the pacer spins through is the clock's next tick.
    monkeypatch.setattr(emulation, "_SPIN_NS", 0)
    return found


def paced(clock, work, stall=None, slot=0.01):
    pacer = LayerPacer(slot / 5, 5.0)
    pacer.start()
    ends = []
    for index, seconds in enumerate(work):
        stalled = stall[index] if stall else 0.0
        clock.work(seconds + stalled)
        pacer.layer_done(stalled)
        ends.append(clock.now / 1e9)
    return pacer, ends


def test_a_layer_lasts_its_stretched_time_and_the_stall(clock) -> None:
    pacer, ends = paced(clock, [0.004, 0.001, 0.0, 0.01], [0.0, 0.02, 0.0, 0.005])
    assert ends == pytest.approx([0.01, 0.04, 0.05, 0.065])
    assert pacer.overruns == 0 and pacer.layers == 4
    assert pacer.seconds_per_layer == pytest.approx(0.01)
    assert pacer.work == pytest.approx([0.004, 0.001, 0.0, 0.01])


def test_what_was_late_is_made_up_for_and_counted(clock) -> None:
    pacer, ends = paced(clock, [0.025, 0.004, 0.001, 0.001])
    assert ends == pytest.approx([0.025, 0.029, 0.03, 0.04])
    assert pacer.overruns == 2 and pacer.overrun_share == 0.5
    assert pacer.seconds_per_layer == pytest.approx(0.01)


def test_work_that_never_fits_lasts_as_long_as_it_takes(clock) -> None:
    pacer, ends = paced(clock, [0.02] * 10)
    assert ends[-1] == pytest.approx(0.2)
    assert pacer.overrun_share == 1.0 and pacer.seconds_per_layer == pytest.approx(0.02)


def test_only_decoding_is_paced(clock) -> None:
    pacer = LayerPacer(0.002, 5.0)
    told = []
    with decoding(pacer, lambda index, token: told.append((index, token))) as on_token:
        pacer.layer_done(0.0)
        assert clock.now == 0, "a prompt's layers are not padded"
        on_token(0, 7)
        pacer.layer_done(0.0)
        assert clock.now == pytest.approx(1e7)
        on_token(1, 8)
        pacer.layer_done(0.0)
    pacer.layer_done(0.0)
    assert clock.now == pytest.approx(2e7) and pacer.layers == 2
    assert told == [(0, 7), (1, 8)]
    pacer.forget()
    assert (pacer.layers, pacer.overruns, pacer.overrun_share, pacer.seconds_per_layer) == (0, 0, 0.0, 0.0)


def test_without_a_pacer_tokens_go_where_they_went() -> None:
    with decoding(None, print) as on_token:
        assert on_token is print


def test_factor_zero_pads_nothing(clock) -> None:
    pacer = LayerPacer(0.002, 0.0)
    pacer.start()
    clock.work(0.003)
    pacer.layer_done(0.001)
    assert clock.now == 3_000_000 and pacer.work == pytest.approx([0.002])


def test_padding_sleeps_and_does_not_burn_the_core() -> None:
    pacer = LayerPacer(0.004, 5.0)
    pacer.start()
    begin, busy = time.perf_counter(), time.process_time()
    for _ in range(5):
        pacer.layer_done(0.0)
    assert time.perf_counter() - begin >= 0.1
    assert time.process_time() - busy < 0.05


def test_the_factor_is_the_smallest_that_fits() -> None:
    work = np.full(1000, 3.5 * 170e-6)
    assert smallest_factor(work, 170e-6) == 5
    work[::100] = 5.2 * 170e-6  # one layer in a hundred is late, and the next one makes up for it
    assert smallest_factor(work, 170e-6) == 5
    work[::10] = 9 * 170e-6
    assert smallest_factor(work, 170e-6) > 7
    assert smallest_factor(np.full(10, 1.0), 170e-6) == LADDER[-1]
    assert [larger_factor(factor) for factor in (1.0, 20.0, 50.0)] == [2.0, 30.0, None]
    assert list(LADDER) == sorted(LADDER) and LADDER[0] == 1 and LADDER[-1] == 50


def test_times_are_given_back_and_the_ratio_stays() -> None:
    stretched = Emulation(PACE, 20.0)
    assert stretched.real_ns(1000, 21_000) == 2000
    assert stretched.layer_seconds == pytest.approx(20 * 170e-6)
    assert stretched.layer_seconds / stretched.link_seconds_per_expert == pytest.approx(PACE.overlap_ratio)
    assert stretched.overlap_ratio == pytest.approx(170 / 189)


@pytest.mark.parametrize(("layer", "factor"), [(0.0, 1.0), (-1.0, 1.0), (1.0, -1.0)])
def test_paces_that_cannot_be_are_refused(layer, factor) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        LayerPacer(layer, factor)
