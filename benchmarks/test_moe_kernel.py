"""CPU MoE at top-8 of 128 experts (hidden 512, width 192), one thread: through slots, and as others would.

The pool is larger than the CPU's caches and each call routes anew, so experts come from memory. Besides what
pytest-benchmark's own table shows, each way is timed in turns with the floor; the ratio of the two (medians of the
best of several windows, since other programs share the machine) is in its ``extra_info`` and in the summary printed
at the end.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest
import torch
from moe_ways import GatherBmm, GroupedMm, KTransformers, Layer, LinearLoop, MemoryFloor, ThroughSlots

EXPERTS, TOP_K, HIDDEN, WIDTH = 128, 8, 512, 192
WINDOWS, CALLS = 10, 16
PEERS = (LinearLoop, GatherBmm, GroupedMm, KTransformers, MemoryFloor)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# Ours keeps float32 between the matrices; the others round to the type of the weights.
TOLERANCE = {ThroughSlots: 1e-5, "fp32": 1e-5, "bf16": 5e-2}


@pytest.fixture(scope="module", params=DTYPES)
def layer(request):
    torch.set_num_threads(1)
    return request.param, Layer.random(EXPERTS, HIDDEN, WIDTH, DTYPES[request.param])


@pytest.fixture(scope="module")
def summary(request):
    lines: list[str] = []
    yield lines
    reporter = request.config.pluginmanager.getplugin("terminalreporter")
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        reporter.write_line("\nMoE kernel: ratio to one pass over the experts' bytes, in turns with it")
        for line in lines:
            reporter.write_line(line)


def _inputs(tokens):
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, HIDDEN, generator=generator)
    weights = torch.full((tokens, TOP_K), 1 / TOP_K)
    routings = [
        torch.stack([torch.randperm(EXPERTS, generator=generator)[:TOP_K] for _ in range(tokens)])
        for _ in range(WINDOWS * CALLS)
    ]
    return x, weights, routings


def _seconds_in_turns(way, floor, x, weights, routings):
    """The median of the best window of each."""
    medians = []
    for start in range(0, len(routings), CALLS):
        for each in (way, floor):
            times = []
            for chosen in routings[start : start + CALLS]:
                begin = perf_counter()
                each(x, weights, chosen)
                times.append(perf_counter() - begin)
            medians.append(np.median(times))
    return min(medians[::2]), min(medians[1::2])


def _build(way, name, layer):
    if way is KTransformers:
        if name != "bf16":
            pytest.skip("KTransformers' layer takes bfloat16")
        pytest.importorskip("kt_kernel", reason="needs kt-kernel (pip install --no-deps kt-kernel)")
        return KTransformers(layer, TOP_K)
    if way is GroupedMm and not hasattr(torch.nn.functional, "grouped_mm"):
        pytest.skip("this PyTorch has no grouped_mm")
    return way(layer)


@pytest.mark.parametrize("tokens", [1, 8])
@pytest.mark.parametrize("way", [ThroughSlots, *(pytest.param(way, marks=pytest.mark.peer) for way in PEERS)])
def test_moe(benchmark, layer, way, tokens, summary):
    name, weights_of = layer
    run = _build(way, name, weights_of)
    x, weights, routings = _inputs(tokens)
    expected = LinearLoop(Layer(weights_of.gate_up.float(), weights_of.down.float()))(x, weights, routings[0])
    result = run(x, weights, routings[0])
    if result is not None:
        np.testing.assert_allclose(result, expected, atol=TOLERANCE.get(way, TOLERANCE[name]))

    benchmark.group = f"MoE, {name}, {tokens} token{'s' if tokens > 1 else ''}"
    turn = iter(range(10**9))
    benchmark(lambda: run(x, weights, routings[next(turn) % len(routings)]))
    if way is MemoryFloor:
        return
    seconds, floor = _seconds_in_turns(run, MemoryFloor(weights_of), x, weights, routings)
    ratio = benchmark.extra_info["ratio_to_memory_floor"] = seconds / floor
    label = f"{name}, batch {tokens}, {way.__name__}"
    summary.append(f"  {label:32} {seconds * 1e6:6.0f} us, floor {floor * 1e6:5.0f} us: {ratio:5.2f} x")
