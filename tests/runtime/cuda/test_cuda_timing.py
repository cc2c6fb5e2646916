"""Protects how launches are timed: by the device's events, many in a graph where kernels are short."""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("not checked: Triton is not installed", allow_module_level=True)

from seqmoe.runtime.cuda import clock
from seqmoe.runtime.cuda.checks import timing
from seqmoe.runtime.cuda.clock import CopyClock


class Cuda:
    """`torch.cuda` with a clock that goes on by 2 ms with every launch; what is captured is launched by a replay."""

    def __init__(self) -> None:
        self.now, self.launched, self._capturing, self._captured = 0.0, 0, False, 0
        cuda = self

        class Event:
            def __init__(self, enable_timing) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = cuda.now

            def elapsed_time(self, end) -> float:
                return end.at - self.at

        self.Event = Event

    def launch(self) -> None:
        if self._capturing:
            self._captured += 1
        else:
            self.now += 2.0
            self.launched += 1

    def CUDAGraph(self):
        return self

    @contextmanager
    def graph(self, graph):
        self._capturing = True
        yield
        self._capturing = False

    def replay(self) -> None:
        self.now += 2.0 * self._captured

    def synchronize(self) -> None:
        pass


class Gpu:
    captures = True

    def synchronize(self) -> None:
        pass


@pytest.fixture
def cuda(monkeypatch):
    found = Cuda()
    for module in (timing, clock):
        monkeypatch.setattr(module, "torch", type("Torch", (), {"cuda": found}))
    return found


def test_one_by_one_every_launch_is_timed(cuda) -> None:
    assert timing.seconds_of(cuda.launch, Gpu(), repeats=4, warm_up=2) == pytest.approx(0.002)
    assert cuda.launched == 6


def test_in_a_graph_a_replay_is_timed_and_shared_among_its_launches(cuda) -> None:
    assert timing.seconds_of(cuda.launch, Gpu(), repeats=10, warm_up=1, in_graph=True) == pytest.approx(0.002)
    assert cuda.launched == 1, "all others are in the graph"


def test_copies_are_timed_by_the_devices_clock(cuda) -> None:
    found = CopyClock(Gpu())
    for _ in range(3):
        cuda.now += 50.0  # other work in between
        found.around(cuda.launch)
    assert found.seconds() == pytest.approx(0.006)
