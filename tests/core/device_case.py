"""A device in plain Python, and the real worker behind its control region."""

from __future__ import annotations

import time

import numpy as np
from twins.device import Device

from seqmoe.core.budget import TransferBudget
from seqmoe.core.control import CONSUMED, LANDINGS, NOTHING, TAKEN, TASKS, Control
from seqmoe.core.device_worker import DeviceWorker
from seqmoe.core.link import FailingLink, Link


class Case:
    """Host and device memory of recognisable bytes, table, region, link and worker; a context that stops the worker.

    ``make_link(host, pool)`` may give another link than memcpy's. With ``fail_every`` = n every n-th transfer fails.
    """

    def __init__(self, layers=4, experts=8, slots=8, width=16, capacity=64, average=1.0, order="matroid", seconds=0.0,
                 fail_every=None, make_link=None):  # fmt: skip
        self.layers, self.experts, self.slots, self.order = layers, experts, slots, order
        self.host = np.random.default_rng(7).integers(1, 2**63, (layers * experts, width))
        self.pool = np.zeros((slots, width), dtype=np.int64)
        self.control = Control.of(capacity)
        self.device = Device(self.control, self.host, self.pool)
        self.link = make_link(self.host, self.pool) if make_link else self.memcpy(seconds)
        self.budget = TransferBudget(average)
        self.synced = 0
        self.worker = self.start(FailingLink(self.link, fail_every) if fail_every else self.link)

    def memcpy(self, seconds=0.0):
        return Link([(self.host.ctypes.data, self.pool.ctypes.data, self.host.strides[0])], seconds)

    def start(self, link):
        return DeviceWorker(
            self.control.words, link, self.budget, self.layers, self.experts, self.slots, order=self.order
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.worker.stop()

    def count(self, name):
        return self.worker.statistics()[name]

    def landings(self):
        return int(self.control.words[LANDINGS])

    def wait_for(self, condition):
        give_up = time.monotonic() + 60
        while not condition():
            self.worker.check()
            assert time.monotonic() < give_up, "the worker hangs"
            time.sleep(0.0002)

    def wait_for_landings(self, count):
        self.wait_for(lambda: self.landings() >= count)

    def sync(self):
        """Return once the worker has looked at everything, and has done what followed from it."""
        self.synced += 3
        for _ in range(3):
            self.device.write_task(NOTHING, 0, 0.0)
            self.wait_for(lambda: self.control.words[TAKEN] == self.control.words[TASKS])

    def check_account(self):
        """After the worker's end: every slot is back, every task accounted for, every byte right."""
        self.worker.stop()
        self.device.land()
        assert self.device.lent_out() == 0, "a slot is lost"
        self.device.check_bytes()
        counts = self.worker.statistics()
        dropped = counts["overdue"] + counts["duplicate"] + counts["refused"]
        assert counts["tasks"] == dropped + counts["sent"] + self.worker.queued
        assert counts["sent"] == counts["landed"] + counts["failed"]
        assert counts["tasks"] + counts["overrun"] == self.control.words[TASKS]
        assert counts["landed"] == self.device.landed + self.device.was_resident
        assert counts["failed"] + counts["returned"] == self.device.came_back_empty
        assert counts["bytes"] == counts["landed"] * self.host.strides[0]
        assert 0 <= counts["late"] <= counts["landed"]
        assert counts["late_bytes"] == counts["late"] * self.host.strides[0]
        return counts


def drive(case, rng, steps, top_k, want, tasks, clobber=False):
    """A decode with random routing; the device does per layer what its graph does.

    With ``clobber`` it now and then puts an older value back into a word of the host's, as a read-modify-write can.
    """
    device, words, layers, experts = case.device, case.control.words, case.layers, case.experts
    position = step = 0
    for _ in range(steps * layers):
        layer = position % layers
        device.arrive(position)
        device.land()
        device.score[:] = rng.random(len(device.score))
        if rng.random() < 0.3:
            time.sleep(5e-5)  # so that transfers end at any point of a layer
        device.event([layer * experts + int(e) for e in rng.choice(experts, rng.integers(0, top_k + 1), replace=False)])
        device.lend(want, keep=top_k)
        wanted = [int(key) for key in rng.integers(0, layers * experts, tasks) if device.find(int(key)) < 0]
        device.dispatch(
            [(key, (step + 1) * layers + key // experts + int(rng.integers(-1, 2)), rng.random()) for key in wanted]
        )
        if clobber and rng.random() < 0.2:
            words[LANDINGS] = max(words[CONSUMED], words[LANDINGS] - 1)
            words[TAKEN] -= min(1, words[TAKEN])
        position += 1
        step = position // layers
        if rng.random() < 0.02:
            position = step = 0
            if rng.random() < 0.5:
                device.arrive(0)
                case.worker.forget()
