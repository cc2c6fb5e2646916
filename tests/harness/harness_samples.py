"""Cells and records for tests: every value can be chosen, none has to be."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqmoe.harness.record import SCHEMA, Observations, PromptObservation, Record, Status
from seqmoe.spec.suite import Cell

MILLISECOND = 1_000_000


def cell(**changes: Any) -> Cell:
    defaults: dict[str, Any] = {
        "suite": "demo", "panel": "p", "system": "lru", "model": "tiny", "lane": "measured", "residency": 0.25,
        "batch": 1, "dataset": "few", "prompts": 2, "decode_tokens": 4,
    }  # fmt: skip
    return Cell(**(defaults | changes))


def timed(gaps_ms: list[float], ttft_ms: float = 10.0, start_ms: float = 0.0, tokens: Any = None) -> PromptObservation:
    """A prompt whose first token comes after ``ttft_ms`` and whose others follow after ``gaps_ms``."""
    times = [start_ms + ttft_ms]
    for gap in gaps_ms:
        times.append(times[-1] + gap)
    ids = tuple(tokens) if tokens is not None else tuple(range(len(times)))
    return PromptObservation(int(start_ms * MILLISECOND), tuple(int(t * MILLISECOND) for t in times), ids)


def record(
    prompts: int | list[PromptObservation] = 2,
    decode_tokens: int = 4,
    status: Status | None = None,
    stats: dict[str, Any] | None = None,
    repeat: int = 0,
    environment: dict[str, Any] | None = None,
    **changes: Any,
) -> Record:
    observed = prompts if isinstance(prompts, list) else [timed([5.0] * (decode_tokens - 1)) for _ in range(prompts)]
    length = len(observed[0].tokens) if observed else decode_tokens
    point = cell(**({"prompts": len(observed) or 1, "decode_tokens": length} | changes))
    return Record(
        SCHEMA, point, point.key, repeat, status or Status("ok"), Observations(tuple(observed), stats or {}),
        environment or {}, "2026-01-01T00:00:00Z", 1.5,
    )  # fmt: skip


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether the condition comes true in time."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def processes_with(mark: str, seconds: float = 3.0) -> list[int]:
    """Live processes other than this one that have ``mark`` in an argument; killed ones get a moment to vanish."""
    limit = time.monotonic() + seconds
    while True:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in arguments and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        if not found or time.monotonic() > limit:
            return found
        time.sleep(0.05)
