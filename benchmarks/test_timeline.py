"""The simulator: one cell of figure 6, SeqMoE on Qwen3-30B-A3B and the RTX 4090, beside what it cannot do without.

A cell is the event loop over its workload, and arithmetic on what that counts. The peer is the same loop without
prefetching (LRU, which a simulator of caches alone would run); the floor is the arithmetic, with counts at hand.
"""

from __future__ import annotations

import pytest

from seqmoe.simulate.timeline.cell import Simulator
from seqmoe.spec.calibration import load_calibration
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import find_home


@pytest.fixture(scope="module")
def simulator():
    home = find_home()
    found = Simulator(home, load_calibration(home))
    model, hardware = load_model(home, "qwen3-30b-a3b-fp8"), load_hardware(home, "rtx4090")
    found.workload(model, 1)  # drawn once for all cells of a model
    return found, model, hardware


@pytest.mark.benchmark(group="one simulated cell of figure 6")
@pytest.mark.parametrize("way", ["seqmoe", *(pytest.param(way, marks=pytest.mark.peer) for way in ("lru", "floor"))])
def test_simulated_cell(benchmark, simulator, way):
    found, model, hardware = simulator
    system = "seqmoe" if way == "floor" else way

    def cell():
        if way != "floor":
            found._counts.clear()
        return found.run(system, model, hardware, 0.45)

    first = cell()
    assert 0 < first.counts.hit_rate < 1
    assert benchmark(cell) == first
