"""A model of 2.1 GiB in 1 GiB of memory: our disk tier beside llama.cpp's mapped file, on the same prompts.

Both run under the same control group, page cache included, with cold files, one thread, bfloat16 and as many tokens; in
turns, so that what else the machine does meets both. What each process reads from the disk is counted by the kernel.
The floor of a token is what our runtime reads for it over what the disk gives to reads past the page cache.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from disk_bandwidth import direct_bytes_per_second
from large_checkpoint import TOTAL_BYTES, large_checkpoint
from memory_cap import CannotCap, forget_cached, inside, memory_cap

from seqmoe.harness.environments import environment_python, is_installed
from seqmoe.harness.workers import WorkerProcess
from seqmoe.runtime.timers import PARTS
from seqmoe.spec.baseline import load_baselines
from seqmoe.spec.paths import find_home

LIMIT = 1 << 30
RESIDENCY = 0.25
PROMPTS = [[(7 * i * i + 3 * i + 11 + 500 * prompt) % 4000 + 1 for i in range(16)] for prompt in range(3)]
TOKENS = 16
ROUNDS = 3
THREADS = (1, 2, 4, 8)
OURS, THEIRS = "seqmoe, disk tier", "llama.cpp, mmap"
HOME = find_home(Path(__file__).parent)


@dataclass(frozen=True)
class Way:
    """How one of the two is started: its command, its model, and the share of the experts it is told to hold."""

    command: list[str]
    model: Path
    model_format: str
    residency: float


@dataclass(frozen=True)
class Run:
    """Median over the prompts of decode throughput, bytes read for a decoded token, and every token that was said.

    ``told`` is what the worker says of itself, by name.
    """

    tok_s: float
    bytes_per_token: float
    tokens: list[list[int]]
    told: dict[str, Any]


@pytest.fixture(scope="module")
def ways():
    baseline = load_baselines(HOME.baselines)["llama_cpp"]
    if not is_installed(baseline, HOME):
        pytest.skip("llama.cpp's environment is not installed here; make it with: nox -s baseline-llama-cpp")
    checkpoint, gguf = large_checkpoint(HOME.work / ".benchmarks" / "disk-tier")
    program, theirs = Path(__file__).with_name("disk_tier_worker.py"), baseline.folder / "worker.py"
    return {
        OURS: Way([sys.executable, str(program)], checkpoint, "hf", RESIDENCY),
        THEIRS: Way([str(environment_python(baseline, HOME)), str(theirs)], gguf, "gguf", 1.0),
    }


@pytest.mark.peer
@pytest.mark.asked
def test_disk_tier_beside_a_mapped_file(benchmark, ways, capsys):
    """Rounds of both; the figures are in ``extra_info``, and printed."""
    runs: dict[str, list[Run]] = {name: [] for name in ways}
    shards = sorted(ways[OURS].model.glob("*.safetensors"))
    bandwidth = dict.fromkeys(THREADS, 0.0)

    def one_round() -> None:
        for name, way in ways.items():
            runs[name].append(_run(way))
        for threads in THREADS:
            bandwidth[threads] = max(bandwidth[threads], direct_bytes_per_second(shards, threads))

    try:
        benchmark.pedantic(one_round, rounds=ROUNDS, iterations=1)
    except CannotCap as reason:
        pytest.skip(f"memory cannot be limited here: {reason}")
    figures = _figures(runs, bandwidth)
    benchmark.extra_info.update(figures)
    with capsys.disabled():
        print(f"\n{TOTAL_BYTES / 2**30:.2f} GiB of experts under {LIMIT / 2**30:g} GiB, {ROUNDS} rounds in turns")
        for name, value in figures.items():
            print(f"  {name}: {value}")
    assert all(len(run.tokens) == len(PROMPTS) for each in runs.values() for run in each)


def _run(way: Way) -> Run:
    """One process from a cold start: a warm-up, then every prompt."""
    forget_cached(way.model if way.model.is_dir() else way.model.parent)
    request = {
        "protocol": 1, "cell": {"system": "lru", "residency": way.residency, "batch": 1}, "prompts": PROMPTS,
        "model_path": str(way.model), "model_format": way.model_format, "decode_tokens": TOKENS, "device": "cpu",
        "threads": 1, "warmup": True,
    }  # fmt: skip
    times: list[list[int]] = [[] for _ in PROMPTS]
    said: list[list[int]] = [[] for _ in PROMPTS]
    read: list[list[int]] = [[] for _ in PROMPTS]
    told: dict[str, Any] = {}
    with memory_cap(LIMIT) as group, WorkerProcess(inside(group, way.command), threads=1) as worker:
        for event in worker.request(request, 1800):
            assert event["event"] != "error", event
            if event["event"] == "stat":
                told[event["name"]] = event.get("value")
            if event["event"] == "token":
                times[event["prompt"]].append(event["time_ns"])
                said[event["prompt"]].append(event["token"])
                read[event["prompt"]].append(_bytes_read(worker.pid))
    rates = [1e9 * (len(stamps) - 1) / (stamps[-1] - stamps[0]) for stamps in times]
    size = sum(counts[-1] - counts[0] for counts in read) / (len(PROMPTS) * (TOKENS - 1))
    return Run(median(rates), size, said, told)


def _bytes_read(pid: int) -> int:
    """What the kernel fetched from disks for a process, page faults and direct reads alike."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def _figures(runs: dict[str, list[Run]], bandwidth: dict[int, float]) -> dict[str, float | str]:
    figures: dict[str, float | str] = {}
    for name, each in runs.items():
        rates = sorted(run.tok_s for run in each)
        figures[f"{name}, tok/s"] = round(median(rates), 2)
        figures[f"{name}, tok/s of the rounds"] = ", ".join(f"{rate:.2f}" for rate in rates)
        figures[f"{name}, MB read for a token"] = round(median(run.bytes_per_token for run in each) / 1e6, 1)
    figures["ours over llama.cpp's"] = round(
        median(ours.tok_s / theirs.tok_s for ours, theirs in zip(runs[OURS], runs[THEIRS], strict=True)), 2
    )
    parts = {part: median(run.told[f"{part}_seconds"] for run in runs[OURS]) for part in PARTS}
    shares = (f"{part} {seconds / sum(parts.values()):.0%}" for part, seconds in parts.items())
    figures["our decode steps, warm-up included"] = ", ".join(shares)
    figures["our hit rate, warm-up included"] = round(median(run.told["hit_rate"] for run in runs[OURS]), 3)
    for threads, rate in bandwidth.items():
        figures[f"direct reads by {threads} thread{'s' * (threads > 1)}, MB/s"] = round(rate / 1e6)
    best = max(bandwidth.values())
    floor = median(run.bytes_per_token for run in runs[OURS]) / best
    figures["the disk's limit at our bytes, tok/s"] = round(1 / floor, 2)
    pairs = list(zip(runs[OURS][0].tokens, runs[THEIRS][0].tokens, strict=True))
    same = sum(a == b for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True))
    figures["tokens in common"] = f"{same / (len(PROMPTS) * TOKENS):.0%}"
    return figures
