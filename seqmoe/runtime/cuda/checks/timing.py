"""How long launches take on a device."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

from seqmoe.runtime.cuda.device import Device

_REPLAYS = 5


def seconds_of(
    launch: Callable[[], object], device: Device, repeats: int = 50, warm_up: int = 3, in_graph: bool = False
) -> float:
    """Median seconds of one call, by the device's own clock where it has one.

    A kernel may be shorter than its launch from Python. ``in_graph`` launches it ``repeats`` times in one graph, so
    that nothing but the device is timed; not for what is a graph itself.
    """
    for _ in range(warm_up):
        launch()
    device.synchronize()
    if not device.captures:
        return median(_on_host(launch, repeats))
    if not in_graph:
        return median(_on_gpu(launch, repeats))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            launch()
    return median(_on_gpu(graph.replay, _REPLAYS)) / repeats


def _on_gpu(launch: Callable[[], object], repeats: int) -> list[float]:
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for begin, end in pairs:
        begin.record()
        launch()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]


def _on_host(launch: Callable[[], object], repeats: int) -> list[float]:
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        launch()
        found.append(time.perf_counter() - began)
    return found
