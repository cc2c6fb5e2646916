"""Protects the link: bytes are really copied, and a throttled channel is occupied as long as it says."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from seqmoe.core.link import FailingLink, Link, TransferError

KEYS, SLOTS = 6, 3


@pytest.fixture
def pools():
    """Two parts of different size per expert: (host [keys, bytes], device [slots, bytes]) each."""
    rng = np.random.default_rng(0)
    sizes = (48, 7)
    return [
        (rng.integers(1, 255, (KEYS, size), dtype=np.uint8), np.zeros((SLOTS, size), dtype=np.uint8)) for size in sizes
    ]


def link_over(pools, seconds=0.0):
    return Link([(host.ctypes.data, device.ctypes.data, host.shape[1]) for host, device in pools], seconds)


def test_copies_every_part_of_one_expert_and_nothing_else(pools):
    link = link_over(pools)
    link.transfer(4, 2)
    link.transfer(0, 1)
    for host, device in pools:
        assert (device[2] == host[4]).all()
        assert (device[1] == host[0]).all()
        assert (device[0] == 0).all()
    assert (link.transfers, link.bytes) == (2, 2 * (48 + 7))


def test_a_large_expert_arrives_whole():
    host = np.random.default_rng(0).integers(0, 255, (2, (8 << 20) + 5), dtype=np.uint8)
    device = np.zeros((1, host.shape[1]), dtype=np.uint8)
    link_over([(host, device)]).transfer(1, 0)
    assert np.array_equal(device[0], host[1])


def test_a_transfer_occupies_the_channel_for_its_time(pools):
    link = link_over(pools, 0.003)
    for _ in range(5):
        link.transfer(1, 1)
    assert link.busy_seconds >= 5 * 0.003
    link.seconds_per_expert = 0.0
    before = link.busy_seconds
    link.transfer(1, 1)
    assert link.busy_seconds - before < 0.003


def test_transfers_of_several_threads_share_one_channel(pools):
    link = link_over(pools, 0.001)
    threads = [threading.Thread(target=lambda: [link.transfer(2, 0) for _ in range(5)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert link.transfers == 15
    assert link.busy_seconds >= 15 * 0.001


def test_a_closed_link_refuses(pools):
    link = link_over(pools)
    link.close()
    with pytest.raises(RuntimeError, match="closed"):
        link.transfer(0, 0)
    assert link.transfers == 0


def test_every_nth_transfer_of_a_failing_link_fails(pools):
    inner = link_over(pools)
    link = FailingLink(inner, 3)
    for attempt in range(1, 10):
        if attempt % 3:
            link.transfer(attempt % KEYS, 0)
            assert (pools[0][1][0] == pools[0][0][attempt % KEYS]).all()
        else:
            with pytest.raises(TransferError, match=f"transfer {attempt} fails"):
                link.transfer(0, 0)
    assert link.transfers == inner.transfers == 6
    assert link.bytes == inner.bytes == 6 * (48 + 7)
    with pytest.raises(ValueError, match="every"):
        FailingLink(inner, 0)


@pytest.mark.parametrize(
    ("parts", "seconds"),
    [([], 0.0), ([(0, 8, 8)], 0.0), ([(8, 8, 0)], 0.0), ([(8, 8, 8)], -1.0), ([(8, 8, 8)], np.nan)],
)
def test_wrong_arguments_are_refused(parts, seconds):
    with pytest.raises(ValueError):
        Link(parts, seconds)
