"""Protects that a signal ends a wait for the link, however long a transfer takes."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from pool_of_bytes import Pool

HOUR = 3600.0


@pytest.fixture(autouse=True)
def _interrupted_soon():
    """SIGINT as a terminal sends it; a test started in the background ignores it by inheritance."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    yield
    timer.cancel()
    signal.signal(signal.SIGINT, before)


def test_a_load_on_demand_is_given_up_and_its_slot_is_free():
    began = time.monotonic()
    with Pool(seconds=HOUR) as pool:
        with pytest.raises(KeyboardInterrupt):
            pool.event(1, 1, [3])
        assert pool.table.slot_of[1, 3] == -1
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("needed", [1, 2])
def test_so_is_the_wait_for_a_prefetch_in_flight_and_for_the_channel_that_it_holds(needed):
    with Pool(seconds=HOUR) as pool:
        pool.prefetch((2, 1, 0.9, 6))
        while pool.count("prefetch_sent") == 0:
            time.sleep(0.01)
        with pytest.raises(KeyboardInterrupt):
            pool.event(2, 2, [needed])
