"""Protects what a capture does around PyTorch's own, on a stand-in for it: warm-up, one launch, replays, reasons."""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("not checked: Triton is not installed", allow_module_level=True)

from seqmoe.runtime.cuda import capture
from seqmoe.runtime.cuda.capture import WARM_UP, CapturedStep, CaptureError
from seqmoe.runtime.cuda.device import check_sum
from seqmoe.spec.errors import OutOfMemoryError


class Stream:
    def wait_stream(self, other) -> None:
        self.waited = other


class Cuda:
    """`torch.cuda` as far as a capture uses it; ``fails`` is what the capture ends with."""

    def __init__(self, fails: str = "") -> None:
        self.log: list[str] = []
        self._fails, self._current = fails, Stream()
        self.Stream = Stream

    def current_stream(self):
        return self._current

    @contextmanager
    def stream(self, stream):
        self.log.append("side stream")
        yield

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def CUDAGraph(self):
        return self

    @contextmanager
    def graph(self, graph, capture_error_mode):
        self.log.append(f"capture, {capture_error_mode}")
        yield
        if self._fails:
            raise RuntimeError(f"{self._fails}\nmore lines")

    def replay(self) -> None:
        self.log.append("replay")


class Step:
    """Counts its launches; ``moves`` at that launch its cache lies elsewhere."""

    model_type = "tiny"

    def __init__(self, moves: int = 0) -> None:
        self.runs = self.begun = 0
        self.placement, self._moves = self, moves

    def before_step(self) -> None:
        self.begun += 1

    def run(self) -> None:
        self.runs += 1
        self.logits = f"of launch {self.runs}"

    @property
    def addresses(self) -> list[int]:
        return [int(self.runs >= self._moves > 0)]


def captured(monkeypatch, step, fails=""):
    cuda = Cuda(fails)
    monkeypatch.setattr(capture, "torch", type("Torch", (), {"cuda": cuda}))
    return CapturedStep(step), cuda


def test_a_step_warms_up_is_launched_once_and_replayed(monkeypatch) -> None:
    step = Step()
    found, cuda = captured(monkeypatch, step)
    assert (step.runs, step.begun) == (WARM_UP + 1, WARM_UP), "the launch that is captured computes no step"
    assert cuda.log == ["side stream", "synchronize", "capture, thread_local"]
    found.run()
    step.logits = "of a launch in between"
    found.run()
    assert step.logits == f"of launch {WARM_UP + 1}"
    assert cuda.log[-2:] == ["replay", "replay"] and step.runs == WARM_UP + 1


def test_a_capture_that_fails_says_why(monkeypatch) -> None:
    with pytest.raises(CaptureError, match=r"'tiny' cannot be captured.*: operation not permitted.*'sync'$"):
        captured(monkeypatch, Step(), "operation not permitted when stream is capturing")


@pytest.mark.parametrize(("moves", "words"), [(2, "moves from step to step"), (WARM_UP + 1, "has moved while")])
def test_a_cache_that_does_not_stay_is_refused(monkeypatch, moves, words) -> None:
    with pytest.raises(CaptureError, match=words):
        captured(monkeypatch, Step(moves))


def test_device_memory_is_summed_up_before_it_is_taken() -> None:
    check_sum({"slots": 2**30}, 2**30)
    with pytest.raises(OutOfMemoryError, match=r"slots 2\.00 GiB = 2\.00 GiB, but 1\.00 GiB are free"):
        check_sum({"slots": 2**31, "none": 0}, 2**30)
