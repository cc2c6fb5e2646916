"""Synthetic records of the figure 6 suite: plausible numbers, chosen by the test, never measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from seqmoe.harness.record import SCHEMA, Observations, PromptObservation, Record, Status
from seqmoe.spec.paths import Home, find_home
from seqmoe.spec.suite import Cell, load_suite
from seqmoe.spec.system import SYSTEMS

HOME: Home = find_home(Path(__file__).parent)
ENVIRONMENT = {
    "host": "cpu-example-2c",
    "cpu": {"model": "Example CPU", "cores": 2, "instruction_sets": ["avx2", "avx512f"]},
    "memory_gib": 16.0,
    "numa_nodes": 1,
    "gpus": [],
    "system": "Linux 6.1",
    "python": "3.11.2",
    "packages": {"torch": "2.13.0", "transformers": "5.24.0"},
    "git": {"revision": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
    "declarations": "clone",
    "device": "cpu",
    "weights": {"model": "5ca1ab1e" * 8, "predictor": None},
}
NEEDS_GPU = Status(
    "unsupported",
    "holding a part of the experts on a device needs a GPU, and this host has none",
    "run `nox -s reproduce-fig6` on a machine with an NVIDIA GPU",
)
NOT_INSTALLED = Status("not_installed", "its own environment does not exist", "nox -s baseline-vllm")


def cell(**changes: Any) -> Cell:
    defaults: dict[str, Any] = {
        "suite": "fig6", "panel": "decode-short", "system": "full", "model": "reference", "lane": "measured",
        "residency": 1.0, "batch": 1, "dataset": "mixed", "prompts": 2, "decode_tokens": 11,
    }  # fmt: skip
    return Cell(**(defaults | changes))


def record(
    point: Cell,
    tok_s: float = 50.0,
    repeat: int = 0,
    status: Status | None = None,
    stats: dict[str, Any] | None = None,
    tokens: Any = None,
    ttft_s: float = 0.05,
    **environment: Any,
) -> Record:
    """A record of ``point`` that decodes ``tok_s`` tokens a second; ``tokens`` are ids for every prompt."""
    prompts = []
    if status is None or status.ok:
        for index in range(point.prompts):
            start = index * 1_000_000_000
            times = [start + round(1e9 * (ttft_s + i / tok_s)) for i in range(point.decode_tokens)]
            said = tuple(tokens) if tokens is not None else tuple(range(100, 100 + point.decode_tokens))
            prompts.append(PromptObservation(start, tuple(times), said))
    return Record(
        SCHEMA, point, point.key, repeat, status or Status("ok"), Observations(tuple(prompts), stats or {}),
        {**ENVIRONMENT, **environment}, "2026-01-01T00:00:00Z", 2.0,
    )  # fmt: skip


def full_load_share(point: Cell) -> float:
    return {
        "full": 1.0,
        "naive": 0.06,
        "lru": 0.16 + 0.98 * point.residency,
        "seqmoe": 0.42 + 0.88 * point.residency,
    }[point.system]


def quick_sweep(repeats: int = 5) -> list[Record]:
    """What a machine without a GPU might record of the quick profile."""
    rng = np.random.default_rng(0)
    records = []
    for repeat in range(repeats):
        speed = 60.0 * rng.normal(1.0, 0.02)
        for point in load_suite(HOME.suites / "fig6.toml").cells("quick"):
            records.append(_quick(point, repeat, speed, rng))
    return records


def _quick(point: Cell, repeat: int, speed: float, rng: np.random.Generator) -> Record:
    noise = float(rng.normal(1.0, 0.015))
    if point.lane == "emulated":
        hits = {"full": 1.0, "naive": 0.0, "lru": 0.40 + point.residency, "seqmoe": 0.60 + 0.8 * point.residency}
        stats = {"hit_rate": min(hits[point.system], 1.0), "overlap_ratio": 0.9, "same_answer": True}
        return record(point, speed * full_load_share(point) * noise, repeat, stats=stats)
    if point.system == "vLLM" and point.residency == 1.0:
        return record(point, repeat=repeat, status=NOT_INSTALLED)
    if point.system not in SYSTEMS and point.residency < 1.0:
        return record(point, repeat=repeat, status=NEEDS_GPU)
    rate = {"full": 64.0, "llama.cpp": 212.0}[point.system]
    said = [*range(100, 100 + point.decode_tokens)]
    if point.system == "llama.cpp":
        said[-7:] = [7] * 7
    return record(point, rate * noise, repeat, tokens=said, stats={"hit_rate": {"missing": "everything is resident"}})
