"""What the meter counts by windows: whole ones of each prompt, without its prefill."""

from __future__ import annotations

from types import SimpleNamespace

from seqmoe.runtime.meter import WINDOW_STEPS, DecodeMeter
from seqmoe.spec.geometry import Geometry


class Engine:
    """Every step needs ten experts; of the n-th step since the start, n are hits."""

    def __init__(self) -> None:
        self.steps = 0
        self.geometry, self.pacer = Geometry(2, 8, 2, expert_bytes=3), None
        pipeline = SimpleNamespace(statistics=self._counts)
        link = SimpleNamespace(transfers=0, busy_seconds=0.0)
        self.offloaded = SimpleNamespace(
            link=link, pipeline=pipeline, pool=SimpleNamespace(entries=4), prefill_policy="on_demand", misses=None
        )

    def _counts(self) -> dict[str, int]:
        return {"needed": 10 * self.steps, "hits": sum(range(self.steps))}


def test_windows_are_whole_ones_of_each_prompt_without_its_prefill():
    engine = Engine()
    meter = DecodeMeter(engine)
    for _ in range(2):
        for index in range(2 * WINDOW_STEPS + 4):
            engine.steps += 1
            meter(index, 0)
        meter.prompt_done()
    windows = meter.statistics(None)["windows"]
    assert windows["steps"] == WINDOW_STEPS
    assert windows["needed"] == [10 * WINDOW_STEPS] * 4
    # The first step of a prompt (its prefill) is in no window, nor are the three that are left at its end.
    first = sum(range(1, 1 + WINDOW_STEPS))
    assert windows["hits"][0] == first
    assert windows["hits"][2] == first + WINDOW_STEPS * (2 * WINDOW_STEPS + 4)
    assert meter.decode["needed"] == 10 * 2 * (2 * WINDOW_STEPS + 3)
    assert meter.prefill["needed"] == 20
