"""A pipeline over small pools of recognisable bytes."""

from __future__ import annotations

import time

import numpy as np

from seqmoe.core.budget import TransferBudget
from seqmoe.core.link import FailingLink, Link
from seqmoe.core.pipeline import OffloadPipeline
from seqmoe.core.slots import SlotTable


class Pool:
    """Host and device memory, table, link, budget and pipeline of one pool; stop it through the context manager.

    With ``fail_every`` = n, every n-th transfer fails.
    """

    def __init__(
        self, layers=4, experts=8, slots=8, seconds=0.0, fetch_limit=None, average=1.0, fail_every=None, **options
    ):
        self.layers, self.experts = layers, experts
        self.host = np.random.default_rng(7).integers(0, 2**63, (layers * experts, 16))
        self.device = np.zeros((slots, 16), dtype=np.int64)
        self.table = SlotTable(layers, experts, slots, fetch_limit)
        self.link = Link([(self.host.ctypes.data, self.device.ctypes.data, self.host.strides[0])], seconds)
        self.budget = TransferBudget(average)
        link = FailingLink(self.link, fail_every) if fail_every else self.link
        self.pipeline = OffloadPipeline(self.table, link, self.budget, **options)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.pipeline.stop()

    def holds(self, layer, experts, slots):
        """Whether slots[i] holds the bytes of experts[i]."""
        keys = layer * self.experts + np.asarray(experts, dtype=int)
        return bool((self.device[slots] == self.host[keys]).all())

    def enter(self, layer, position, experts):
        slots = self.pipeline.enter(layer, position, np.array(experts, dtype=np.int32))
        assert self.holds(layer, experts, slots)
        return slots

    def event(self, layer, position, experts):
        slots = self.enter(layer, position, experts)
        self.pipeline.leave(layer)
        return slots

    def prefetch(self, *tasks):
        """Tasks are (layer, expert, confidence, deadline)."""
        keys = np.array([layer * self.experts + expert for layer, expert, _, _ in tasks], dtype=np.int32)
        confidence = np.array([task[2] for task in tasks], dtype=np.float32)
        return self.pipeline.prefetch(keys, confidence, np.array([task[3] for task in tasks], dtype=np.int64))

    def send_slowly(self, *task):
        """Put one transfer in flight that stays there for a while, whatever comes after it is fast."""
        self.link.seconds_per_expert = 0.3
        self.prefetch(task)
        self.wait_for(lambda: self.count("prefetch_sent"))
        self.link.seconds_per_expert = 0.0

    def let_land(self, layer, position, landed):
        """Re-enter an empty event until that many prefetches have landed."""
        self.wait_for(lambda: self.enter(layer, position, []).size == 0 and self.count("prefetch_landed") >= landed)

    def count(self, name):
        return self.pipeline.statistics()[name]

    def wait_for(self, condition):
        """Let the worker go on until something holds; a worker that hangs fails here."""
        give_up = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < give_up, "the worker hangs"
            time.sleep(0.0005)
