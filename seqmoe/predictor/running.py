"""A network that follows one running sequence: in the C++ core where it can, in PyTorch otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqmoe.core.mamba2 import Mamba2Stepper
from seqmoe.predictor.confidence import Confidence
from seqmoe.predictor.mamba2.core import state_in, stepper_of
from seqmoe.predictor.network import Prediction, SequenceNetwork, State, feedback

Forecasted = tuple[NDArray[np.float32], NDArray[np.float32] | None]


class Running(Protocol):
    """A network and its state. The network's weights must stay as they are from here on."""

    def reset(self) -> None:
        """Forget the sequence."""

    def prefill(self, sequence: NDArray[np.float32]) -> None:
        """Take in steps [steps, layers, experts] at once."""

    def observe(self, activation: NDArray[np.float32]) -> None:
        """Take in one step [layers, experts]."""

    def forecast(self, lookahead: int, confidence: Confidence) -> Forecasted:
        """Probabilities [lookahead + 1, layers, experts] of the next steps, and the discounted use or None.

        There must have been a step.
        """


def running(network: SequenceNetwork, psi: bool) -> Running:
    """``network`` with a fresh state: in the core if it is a Mamba2 trunk in float32 on the CPU."""
    stepper = stepper_of(network) if psi else None
    return TorchRunning(network, psi) if stepper is None else CoreRunning(network, stepper)


class TorchRunning:
    """In PyTorch, on the network's device."""

    def __init__(self, network: SequenceNetwork, psi: bool) -> None:
        self._network, self._psi = network, psi
        self._state: State = network.new_state(1)
        self._next: Prediction | None = None

    def reset(self) -> None:
        """See `Running`."""
        self._state.zero_()

    @torch.inference_mode()
    def prefill(self, sequence: NDArray[np.float32]) -> None:
        """See `Running`."""
        self._next = self._network.prefill(self._network.read(sequence[None]), self._state)

    @torch.inference_mode()
    def observe(self, activation: NDArray[np.float32]) -> None:
        """See `Running`."""
        self._next = self._network.step(self._network.read(activation[None]), self._state)

    @torch.inference_mode()
    def forecast(self, lookahead: int, confidence: Confidence) -> Forecasted:
        """See `Running`; the state is restored after the rollout."""
        assert self._next is not None
        rows = rollout(self._network, confidence, self._next, lookahead, self._state, self._psi)
        use = None if self._next.use is None else self._next.use.sigmoid()[0].cpu().numpy()
        return torch.stack([row[0] for row in rows]).cpu().numpy(), use


class CoreRunning:
    """Steps and rollouts in the core; a prompt in PyTorch, on the same state."""

    def __init__(self, network: SequenceNetwork, stepper: Mamba2Stepper) -> None:
        self._network, self._stepper = network, stepper
        self._state = state_in(stepper)

    def reset(self) -> None:
        """See `Running`."""
        self._stepper.reset()

    @torch.inference_mode()
    def prefill(self, sequence: NDArray[np.float32]) -> None:
        """See `Running`."""
        prediction = self._network.prefill(self._network.read(sequence[None]), self._state)
        self._stepper.logits[:] = prediction.logits[0].numpy()
        if prediction.use is not None and self._stepper.use is not None:
            self._stepper.use[:] = prediction.use[0].numpy()

    def observe(self, activation: NDArray[np.float32]) -> None:
        """See `Running`."""
        self._stepper.observe(np.ascontiguousarray(activation, dtype=np.float32))

    @torch.inference_mode()
    def forecast(self, lookahead: int, confidence: Confidence) -> Forecasted:
        """See `Running`."""
        use = self._stepper.use
        chance = None if use is None else torch.from_numpy(use).sigmoid().numpy()
        lines = np.ascontiguousarray(confidence.lines, dtype=np.float32)
        return self._stepper.forecast(lookahead, lines), chance


def feeds_back(network: SequenceNetwork, lookahead: int) -> bool:
    """Whether a forecast is a rollout: what a network predicts directly is taken as it is."""
    return lookahead > network.shape.ahead


def rollout(
    network: SequenceNetwork,
    confidence: Confidence,
    prediction: Prediction,
    lookahead: int,
    state: State | None,
    psi: bool = True,
) -> Iterator[Tensor]:
    """Probabilities of the next step and of ``lookahead`` more; the state is restored at the end.

    ``state`` may be None if nothing is fed back.
    """
    logits = prediction.logits
    yield confidence.probability(logits, 0)
    if not feeds_back(network, lookahead):
        for step in range(lookahead):
            yield confidence.probability(prediction.ahead[:, step], step + 1)  # type: ignore[index]
        return
    assert state is not None
    before = state.snapshot()
    for step in range(1, lookahead + 1):
        logits = network.step(feedback(logits, network.shape.top_k, psi), state).logits
        yield confidence.probability(logits, step)
    state.restore(before)
