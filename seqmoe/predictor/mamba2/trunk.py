"""Residual Mamba2 mixers, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqmoe.predictor.mamba2.mixer import Mamba2Mixer, MixerShape, MixerState

# States that are rolled out together: a state of 256 x 2 x 64 numbers is 128 KiB a block.
_GROUP = 128


@dataclass(frozen=True, slots=True, eq=False)
class TrunkState:
    """The mixers' states, at addresses that never change."""

    mixers: list[MixerState]

    def snapshot(self) -> list[MixerState]:
        """Copies of the mixers' states."""
        return [MixerState(mixer.window.clone(), mixer.scan.clone()) for mixer in self.mixers]

    def restore(self, snapshot: list[MixerState]) -> None:
        """Come back, in place, to where the snapshot was taken."""
        for mixer, past in zip(self.mixers, snapshot, strict=True):
            mixer.copy_(past)

    def zero_(self) -> None:
        """Forget the sequences, in place."""
        for mixer in self.mixers:
            mixer.zero_()


class Mamba2Trunk(nn.Module):
    """[batch, time, hidden] -> [batch, time, hidden], causal; normed before each mixer and at the end."""

    def __init__(self, hidden: int, blocks: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.norms = nn.ParameterList(torch.ones(hidden) for _ in range(blocks + 1))
        self.mixers = nn.ModuleList(Mamba2Mixer(MixerShape(hidden)) for _ in range(blocks))
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, state: TrunkState | None = None) -> Tensor:
        """Whole sequences; ``state``, if given, is where they start from, and is left where they end."""
        for index, mixer in enumerate(self.mixers):
            past = None if state is None else state.mixers[index]
            hidden = hidden + self.dropout(mixer(self._norm(index, hidden), past))
        return self._norm(-1, hidden)

    def prefill(self, hidden: Tensor, state: TrunkState) -> Tensor:
        """[batch, time, hidden] -> [batch, hidden] of the last step; the state advances in place."""
        return self(hidden, state)[:, -1]

    def step(self, hidden: Tensor, state: TrunkState) -> Tensor:
        """[batch, hidden] -> [batch, hidden]; the state advances in place."""
        for index, mixer in enumerate(self.mixers):
            hidden = hidden + mixer.step(self._norm(index, hidden), state.mixers[index])  # type: ignore[operator]
        return self._norm(-1, hidden)

    def states_after(self, hidden: Tensor, positions: list[int]) -> Iterator[tuple[list[int], TrunkState]]:
        """For one sequence [time, hidden]: the states after the given steps (ascending), grouped into batches."""
        running = self.new_state(1)
        begun = 0
        for start in range(0, len(positions), _GROUP):
            group = positions[start : start + _GROUP]
            states = self.new_state(len(group))
            for row, position in enumerate(group):
                self(hidden[None, begun : position + 1], running)
                begun = position + 1
                for kept, mixer in zip(states.mixers, running.mixers, strict=True):
                    kept.window[row] = mixer.window[0]
                    kept.scan[row] = mixer.scan[0]
            yield group, states

    def new_state(self, batch: int) -> TrunkState:
        """The state before a sequence."""
        return TrunkState([mixer.new_state(batch) for mixer in self.mixers])  # type: ignore[operator]

    def _norm(self, index: int, hidden: Tensor) -> Tensor:
        weight: Any = self.norms[index]
        return functional.rms_norm(hidden, hidden.shape[-1:], weight.to(hidden.dtype))
