"""The steps of `nox -s gpu`, in the order in which they run; each stays below nine minutes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from seqmoe.core.driver import measure_bandwidth
from seqmoe.harness.gpu.children import check, sanitized
from seqmoe.harness.gpu.sizes import run_cells, train
from seqmoe.spec.paths import Home

RESIDENCIES = (0.15, 0.25, 0.35, 0.45)
# Expert by expert takes a hundred times as long: those cells have a step of their own.
_QUICK = ("execution=graph", "execution=sync")


@dataclass(frozen=True, slots=True)
class Step:
    """``run`` returns its findings as plain values, or raises `StepFailed` or `NotHere`."""

    name: str
    title: str
    run: Callable[[Home], dict[str, Any]]


def _checked(name: str) -> Callable[[Home], dict[str, Any]]:
    return lambda home: check(name)


def _sanitized(tool: str) -> Callable[[Home], dict[str, Any]]:
    return lambda home: sanitized(tool)


def _bandwidth(home: Home) -> dict[str, Any]:
    return asdict(measure_bandwidth())


def _copies(home: Home) -> dict[str, Any]:
    """The kernel's rate, and its share of what the copy engine reaches alone."""
    found, link = check("copies"), measure_bandwidth().idle
    shares = {count: rate / link for count, rate in found["bytes_per_second"].items()}
    return found | {"link_bytes_per_second": link, "share_of_link": shares}


STEPS = (
    Step("kernels", "every kernel against a reference on the device", _checked("kernels")),
    Step("answers", "full load's tokens at every residency, tiny models of all families", _checked("answers")),
    Step("memcheck", "the kernels under compute-sanitizer memcheck", _sanitized("memcheck")),
    Step("racecheck", "the kernels under compute-sanitizer racecheck", _sanitized("racecheck")),
    Step("capture", "a decode step in one graph, and what it is made of", _checked("capture")),
    Step("memory", "device memory over 20,000 steps", _checked("memory")),
    Step("bandwidth", "the link from pinned memory, idle and contended", _bandwidth),
    Step("copies", "the miss-copy kernel beside the link", _copies),
    Step("slots", "kernels' latency by the number of slots", _checked("slots")),
    Step("predictor", "Mamba2 for the sizes, trained on their routing", train),
    Step("sizes-full", "Qwen3-30B-A3B's sizes at full load: graph, sync", partial(run_cells, only=["full", *_QUICK])),
    Step("sizes-eager", "the same expert by expert, full load and naive", partial(run_cells, only=["execution=eager"])),
    *(
        Step(
            f"sizes-{residency:.0%}".removesuffix("%"),
            f"Qwen3-30B-A3B's sizes at {residency:.0%}: naive, LRU, SeqMoE and its ablations",
            partial(run_cells, only=[f"residency={residency}", *_QUICK]),
        )
        for residency in RESIDENCIES
    ),
)
