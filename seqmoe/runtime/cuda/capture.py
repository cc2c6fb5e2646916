"""A decode step in one CUDA graph, or a sentence on why it cannot be captured."""

from __future__ import annotations

import torch

from seqmoe.runtime.cuda.step import DecodeStep
from seqmoe.spec.errors import InputError

# Compiles every kernel, makes cuBLAS' workspaces and the cache's tensors, and shows whether any of them moves.
WARM_UP = 3


class CaptureError(InputError):
    """A step that cannot be captured; the message says where it failed."""


class CapturedStep:
    """Replays what `DecodeStep.run` launched once."""

    def __init__(self, step: DecodeStep) -> None:
        """Warm up on a stream of its own, then capture. Raises `CaptureError`."""
        self._step = step
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            addresses = warm_up(step)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        try:
            # Only this thread's calls are held to what a capture allows: the worker's copies go on in its own.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                step.run()
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            raise CaptureError(
                f"the decode step of model_type {step.model_type!r} cannot be captured into a CUDA graph: {reason}; "
                "use execution 'sync'"
            ) from error
        if step.addresses != addresses:
            raise CaptureError(
                f"model_type {step.model_type!r}: its cache has moved while it was captured; use execution 'sync'"
            )

        self._logits = step.logits

    def run(self) -> None:
        """Launch the graph; the step's logits are those that it writes, whatever was launched in between."""
        self._graph.replay()
        self._step.logits = self._logits


def warm_up(step: DecodeStep) -> list[int]:
    """Run the step a few times; where its cache lies then. Raises `CaptureError` for a cache that does not stay."""
    step.placement.before_step()
    step.run()
    addresses = step.addresses
    for _ in range(WARM_UP - 1):
        step.placement.before_step()
        step.run()
        if step.addresses != addresses:
            raise CaptureError(
                f"model_type {step.model_type!r}: its cache moves from step to step, so that no graph can find it; use "
                "execution 'sync'"
            )
    return addresses
