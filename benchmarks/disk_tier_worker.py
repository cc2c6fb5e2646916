"""Our runtime with its experts on disk behind the worker protocol of the wrapped systems: started by test_disk_tier."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from baselines._shared.clock import Token, run_prompts
from baselines._shared.protocol import Events, Request, serve
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.meter import DecodeMeter
from seqmoe.spec.system import system


def handle(request: Request, events: Events) -> None:
    """Load without the experts, place them behind the disk link, and decode."""
    request.only_options("execution")
    torch.set_num_threads(request.threads)
    engine = Engine.load(request.model_path, "auto", "disk")
    engine.place(system(request.cell["system"]), request.residency, None, None)
    assert engine.offloaded is not None
    meter = DecodeMeter(engine)

    def generate(prompt: Sequence[int], tokens: int) -> Iterator[Token]:
        for index, result in enumerate(engine.stream(list(prompt), tokens)):
            meter(index, result.tokens[-1])
            yield Token(result.tokens[-1], time.perf_counter_ns())
        meter.prompt_done()

    events.ready()
    run_prompts(request, events, generate)
    events.stat("hit_rate", meter.hit_rate)
    events.stat("direct", engine.offloaded.link.direct)
    for name, value in meter.statistics(None).items():
        events.stat(name, value)
    for name, value in engine.timers.breakdown().as_dict().items():
        events.stat(name, value)
    engine.close()


if __name__ == "__main__":
    sys.exit(serve(handle))
