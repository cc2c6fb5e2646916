"""A trained predictor of one layer range: activations in, logits of the next step's activations out.

Paper, section 5: ``Z1 = Linear(A)``, ``Z2, H' = Trunk(Z1, H)``, ``A' = Linear(Z2)``; output t predicts step t + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqmoe.predictor.attention import AttentionTrunk
from seqmoe.predictor.base import Ranges
from seqmoe.predictor.mamba2.trunk import Mamba2Trunk


class State(Protocol):
    """What a trunk remembers of a batch of sequences."""

    def snapshot(self) -> Any:
        """What `restore` needs to come back here."""

    def restore(self, snapshot: Any) -> None:
        """Come back, in place, to where the snapshot was taken."""

    def zero_(self) -> None:
        """Forget the sequences, in place."""


class Trunk(Protocol):
    """What lies between the projections; each trunk has a state of its own kind."""

    def __call__(self, hidden: Tensor) -> Tensor:
        """[batch, time, hidden] -> the same, whole sequences from their beginning."""

    def step(self, hidden: Tensor, state: Any) -> Tensor:
        """[batch, hidden] -> the same; the state advances in place."""

    def prefill(self, hidden: Tensor, state: Any) -> Tensor:
        """[batch, time, hidden] -> [batch, hidden] of the last step; the state advances in place."""

    def states_after(self, hidden: Tensor, positions: list[int]) -> Iterator[tuple[list[int], Any]]:
        """For one sequence [time, hidden]: the states after the given steps, grouped into batches."""

    def new_state(self, batch: int) -> Any:
        """The state before a sequence."""


class Prediction(NamedTuple):
    """``logits`` [..., layers, experts] of the next step, softmax over experts.

    Beside the paper, and None where a network does not have them: the sigmoid of ``use``, of the same shape, is the
    discounted use, sum over j of (1 - g) g^j active(step + 1 + j); ``ahead`` [..., steps, layers, experts] are logits
    of the steps after the next one, predicted at once instead of by feeding predictions back.
    """

    logits: Tensor
    use: Tensor | None = None
    ahead: Tensor | None = None


@dataclass(frozen=True, slots=True)
class NetworkShape:
    """``trunk`` is mamba2 or attention; ``layers`` are those of the range; ``ahead`` steps are predicted directly."""

    trunk: str
    layers: int
    experts: int
    top_k: int
    hidden: int
    blocks: int
    use_head: bool = True
    ahead: int = 0


class SequenceNetwork(nn.Module):
    """Input projection, trunk, output projection; beside it, if asked for, those to discounted use and later steps."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.shape = shape
        width = shape.layers * shape.experts
        self.enter = nn.Linear(width, shape.hidden)
        self.trunk: Trunk = _TRUNKS[shape.trunk](shape.hidden, shape.blocks)
        self.leave = nn.Linear(shape.hidden, width)
        self.leave_use = nn.Linear(shape.hidden, width) if shape.use_head else None
        self.leave_ahead = nn.Linear(shape.hidden, shape.ahead * width) if shape.ahead else None

    def forward(self, activation: Tensor) -> Prediction:
        """[batch, time, layers, experts] -> what each step predicts of its next one."""
        return self._predict(self.trunk(self._embed(activation)))

    def step(self, activation: Tensor, state: State) -> Prediction:
        """[batch, layers, experts] -> the prediction of the next step; the state advances in place."""
        return self._predict(self.trunk.step(self._embed(activation), state))

    def prefill(self, activation: Tensor, state: State) -> Prediction:
        """[batch, time, layers, experts] -> the prediction after the last of them; the state advances in place."""
        return self._predict(self.trunk.prefill(self._embed(activation), state))

    def states_after(self, activation: Tensor, positions: list[int]) -> Iterator[tuple[list[int], State]]:
        """For one sequence [time, layers, experts]: states after the given steps, a group of them as one batch."""
        return self.trunk.states_after(self._embed(activation), positions)

    def new_state(self, batch: int) -> State:
        """The state before a sequence."""
        state: State = self.trunk.new_state(batch)
        return state

    def read(self, activation: NDArray[np.float32]) -> Tensor:
        """An activation as a tensor on the network's device."""
        return torch.from_numpy(np.ascontiguousarray(activation)).to(self.leave.weight.device)

    def _embed(self, activation: Tensor) -> Tensor:
        # An active expert reads about 1, however many there are.
        embedded: Tensor = self.enter(activation.flatten(-2) * self.shape.top_k)
        return embedded

    def _predict(self, hidden: Tensor) -> Prediction:
        size = (self.shape.layers, self.shape.experts)
        logits = self.leave(hidden).float().unflatten(-1, size)
        use = None if self.leave_use is None else self.leave_use(hidden).float().unflatten(-1, size)
        ahead = None
        if self.leave_ahead is not None:
            ahead = self.leave_ahead(hidden).float().unflatten(-1, (self.shape.ahead, *size))
        return Prediction(logits, use, ahead)


_TRUNKS: dict[str, Callable[[int, int], Trunk]] = {"mamba2": Mamba2Trunk, "attention": AttentionTrunk}


class RangedNetworks(nn.Module):
    """One network per layer range, trained together: [batch, time, layers, experts] of the whole model in and out."""

    def __init__(self, ranges: Ranges, networks: Iterable[SequenceNetwork]) -> None:
        super().__init__()
        self.ranges = ranges
        self.networks = nn.ModuleList(networks)

    def forward(self, activation: Tensor) -> Prediction:
        """What each step predicts of its next one, each range from its own layers."""
        parts = [
            network(activation[:, :, first:last])
            for (first, last), network in zip(self.ranges, self.networks, strict=True)
        ]
        return Prediction(
            torch.cat([part.logits for part in parts], -2),
            _joined([part.use for part in parts]),
            _joined([part.ahead for part in parts]),
        )


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present, -2) if present else None


def feedback(logits: Tensor, top_k: int, psi: bool = True) -> Tensor:
    """What a prediction [..., experts] looks like as the next input: Psi of its ``top_k`` largest, zero elsewhere.

    Without ``psi``, the logits of these relative to the smallest, which is 1 (`seqmoe.predictor.psi.activations`).
    """
    top, index = logits.topk(top_k, -1)
    values = top.softmax(-1) if psi else 1 + top - top[..., -1:]
    return torch.zeros_like(logits).scatter_(-1, index, values)
