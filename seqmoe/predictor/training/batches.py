"""From a trace set, perhaps larger than memory, to padded batches of activations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmoe.predictor.psi import activations
from seqmoe.spec.trace import RequestTrace, TraceSet

# Longer requests are cut to a window at a random place: padding and memory stay bounded.
WINDOW = 1024
# Batches whose requests are read together and sorted by length, so that little is padding.
_POOL = 8


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Sequences of one length, padded with zeros at the end.

    ``inputs`` float32 [batch, time, layers, experts] as the predictor reads them, ``targets`` the distributions of the
    same steps (they differ only with Psi off); ``tokens`` counts the steps that are real.
    """

    inputs: Tensor
    targets: Tensor
    tokens: int


@dataclass(frozen=True, slots=True)
class BatchSource:
    """Batches of a trace set; ``ordered = False`` shuffles the steps of each sequence, always alike."""

    traces: TraceSet
    batch: int
    seed: int
    psi: bool = True
    ordered: bool = True

    def epoch(self, number: int, rank: int = 0, ranks: int = 1, skip: int = 0) -> Iterator[Batch]:
        """One pass in an order of its own, the same whenever it is asked for, less its first ``skip`` batches.

        Of several ranks each gets every ``ranks``-th batch; all get as many, a few of them twice where need be, since a
        rank without a batch would leave the others waiting for its gradients.
        """
        rng = np.random.default_rng([self.seed, number])
        order = rng.permutation(len(self.traces.requests))
        pool = self.batch * _POOL
        for start in range(0, len(order), pool):
            requests = [(int(i), self._window(self.traces.requests[int(i)], rng)) for i in order[start : start + pool]]
            requests = sorted((pair for pair in requests if len(pair[1]) > 1), key=lambda pair: len(pair[1]))
            groups = [requests[i : i + self.batch] for i in range(0, len(requests), self.batch)]
            shown = rng.permutation(len(groups))
            mine = np.resize(shown, -(-len(shown) // ranks) * ranks)[rank::ranks]
            for index in mine[skip:]:
                yield self.collate(groups[index])
            skip = max(skip - len(mine), 0)

    def whole(self, index: int, steps: int) -> Batch:
        """The first ``steps`` of one request as a batch of its own."""
        return self.collate([(index, _Window(self.traces.requests[index], 0, steps))])

    def collate(self, windows: list[tuple[int, _Window]]) -> Batch:
        """Windows of requests, each with the request's index, as one padded batch."""
        geometry = (self.traces.layers, self.traces.experts)
        length = max(len(window) for _, window in windows)
        targets = np.zeros((len(windows), length, *geometry), dtype=np.float32)
        inputs = targets if self.psi else np.zeros_like(targets)
        for row, (index, window) in enumerate(windows):
            steps = slice(window.start, window.start + len(window))
            places = np.arange(len(window))
            if not self.ordered:
                places = np.random.default_rng([self.seed, index]).permutation(len(window))
            part = window.part(steps)
            targets[row, : len(window)] = activations(part, geometry[1], self.traces.router)[places]
            if not self.psi:
                inputs[row, : len(window)] = activations(part, geometry[1], self.traces.router, psi=False)[places]
        tokens = sum(len(window) for _, window in windows)
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets), tokens)

    @staticmethod
    def _window(request: RequestTrace, rng: np.random.Generator) -> _Window:
        steps = len(request.experts)
        start = int(rng.integers(0, steps - WINDOW + 1)) if steps > WINDOW else 0
        return _Window(request, start, WINDOW)


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
    request: RequestTrace
    start: int
    most: int

    def __len__(self) -> int:
        return min(len(self.request.experts) - self.start, self.most)

    def part(self, steps: slice) -> RequestTrace:
        request = self.request
        return RequestTrace(
            request.experts[steps],
            request.phase[steps],
            None if request.weights is None else request.weights[steps],
            None if request.logits is None else request.logits[steps],
        )
