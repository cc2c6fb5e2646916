"""One site that several tests look at: drawing it takes longer than to look."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_samples import HOME, cell, quick_sweep, record

from seqmoe.harness.against.history import Point
from seqmoe.report.writer import write_report

BENCHMARKS = (("a small machine", "test_slots.py::test_take"), ("a small machine", "test_decode.py::test_step"),
              ("a large one", "test_slots.py::test_take"))  # fmt: skip


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """A site of measured, emulated, simulated and failed cells; two modes measured often enough to be judged."""
    out = tmp_path_factory.mktemp("site")
    modes = [record(cell(suite="fig4", panel="execution", execution=mode), speed + repeat, repeat)
             for mode, speed in (("eager", 100.0), ("graph", 900.0)) for repeat in range(8)]  # fmt: skip
    virtual = [
        record(cell(system=system, residency=held, model="qwen3-30b-a3b-fp8", hardware="rtx4090", lane="simulated"), 90)
        for system, held in (("full", 1.0), ("seqmoe", 0.45), ("lru", 0.45), ("llama.cpp", 0.45))
    ]
    history = [
        Point(letter * 40, f"2026-01-0{day}T00:00:00Z", benchmark, day * 1e-4, machine)
        for day, letter in ((1, "a"), (2, "b"))
        for machine, benchmark in BENCHMARKS
    ]
    write_report([*quick_sweep(2), *modes, *virtual], HOME, out, png=["figure6"], history=history)
    return out
