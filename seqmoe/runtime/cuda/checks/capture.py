"""What a captured step is made of, and whether a replay does what launches one by one do."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.cuda.checks import CheckFailed
from seqmoe.runtime.cuda.checks.timing import seconds_of
from seqmoe.runtime.cuda.checks.tiny import tiny_checkpoint, untrained_mamba2
from seqmoe.runtime.cuda.device import Device
from seqmoe.runtime.cuda.engine import CudaEngine
from seqmoe.runtime.cuda.loading import random_on
from seqmoe.runtime.kernels.call import Call
from seqmoe.spec.system import system

_LENGTH = 64


def check_capture(
    device: Device, checkpoint: Checkpoint | None = None, stored: str = "bf16", steps: int = 20
) -> dict[str, Any]:
    """Place SeqMoE with a graph: seconds to capture, our launches in a step, seconds of a step with and without."""
    engine = CudaEngine(random_on(checkpoint or tiny_checkpoint("qwen3_moe"), stored, device), device)
    predictor = untrained_mamba2(engine.geometry)
    began = time.perf_counter()
    engine.place(replace(system("seqmoe"), execution="graph"), 0.45, predictor, length=_LENGTH)
    placed = time.perf_counter() - began
    before = engine.placement.statistics()["events"]
    seconds = seconds_of(engine.advance, device, steps)
    events = engine.placement.statistics()["events"] - before
    expected = (steps + 3) * engine.geometry.layers
    if events != expected:
        raise CheckFailed(f"{steps + 3} steps of the graph had {events} events instead of {expected}")
    engine.step.reset()
    launches = _launches(engine)
    one_by_one = seconds_of(engine.step.run, device, steps)
    engine.close()
    return {
        "seconds_to_place_and_capture": placed,
        "kernel_launches_of_ours": launches,
        "seconds_per_step": seconds,
        "seconds_per_step_launched_one_by_one": one_by_one,
    }


def _launches(engine: CudaEngine) -> int:
    """How many of our kernels a step launches; what PyTorch launches is not counted."""
    count = 0
    launch = Call.launch

    def counted(call: Call) -> None:
        nonlocal count
        count += 1
        launch(call)

    with patch.object(Call, "launch", counted):
        engine.step.run()
    return count
