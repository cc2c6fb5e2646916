"""The checks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seqmoe.runtime.cuda.checks.answers import check_answers, check_memory_slope
from seqmoe.runtime.cuda.checks.capture import check_capture
from seqmoe.runtime.cuda.checks.kernels import check_kernels
from seqmoe.runtime.cuda.checks.latency import check_copy_speed, check_slot_counts
from seqmoe.runtime.cuda.device import Device

CHECKS: dict[str, Callable[[Device], dict[str, Any]]] = {
    "kernels": check_kernels,
    "answers": check_answers,
    "capture": check_capture,
    "memory": check_memory_slope,
    "copies": check_copy_speed,
    "slots": check_slot_counts,
}
