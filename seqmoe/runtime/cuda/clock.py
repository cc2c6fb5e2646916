"""How long the device is busy with copies of misses, which is how long a step waits for experts."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from seqmoe.runtime.cuda.device import Device


class CopyClock:
    """Times what it is given, by the device's own clock where it has one. Not for a step that is captured."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._host = 0.0

    def around(self, launch: Callable[[], None]) -> None:
        """Run it."""
        if not self._device.captures:
            began = time.perf_counter()
            launch()
            self._host += time.perf_counter() - began
            return
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        launch()
        end.record()
        self._pairs.append((begin, end))

    def seconds(self) -> float:
        """All of it so far; waits for the device."""
        self._device.synchronize()
        return self._host + sum(begin.elapsed_time(end) for begin, end in self._pairs) / 1e3
