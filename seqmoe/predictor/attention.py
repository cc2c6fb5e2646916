"""The trunk of the Transformer probe: causal attention with rotary positions. The paper's upper bound (section 3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

_HEAD_DIM = 64
_BASE = 10_000.0
# Keys that one batch of states may hold, so that long sequences are rolled out a few positions at a time.
_KEYS = 32_768


@dataclass(slots=True, eq=False)
class AttentionState:
    """Keys and values of a batch of sequences; ``lengths`` int64 [batch] of them are filled.

    ``keys`` and ``values``: per block, [batch, heads, capacity, head_dim]; they grow as they must.
    """

    keys: list[Tensor]
    values: list[Tensor]
    lengths: Tensor
    _capacity: int = field(init=False)

    def __post_init__(self) -> None:
        self._capacity = self.keys[0].shape[2]

    def snapshot(self) -> Tensor:
        """The lengths: what lies behind them is forgotten when they come back."""
        return self.lengths.clone()

    def restore(self, snapshot: Tensor) -> None:
        """Come back to where the snapshot was taken."""
        self.lengths.copy_(snapshot)

    def zero_(self) -> None:
        """Forget the sequences."""
        self.lengths.zero_()

    def reserve(self, steps: int) -> None:
        """Make room for so many more steps."""
        wanted = int(self.lengths.max()) + steps
        if wanted > self._capacity:
            more = max(wanted, 2 * self._capacity) - self._capacity
            for kept in (self.keys, self.values):
                kept[:] = [functional.pad(tensor, (0, 0, 0, more)) for tensor in kept]
            self._capacity += more


class _Block(nn.Module):
    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.heads = max(1, hidden // _HEAD_DIM)
        self.norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))
        self.dropout = nn.Dropout(dropout)

    def project(self, hidden: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[batch, time, hidden] -> queries, keys and values [batch, heads, time, head_dim], rotated by position."""
        parts = self.qkv(self.norm(hidden)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return _rotate(parts[0], position), _rotate(parts[1], position), parts[2]

    def finish(self, hidden: Tensor, attended: Tensor) -> Tensor:
        hidden = hidden + self.dropout(self.out(attended.transpose(1, 2).flatten(2)))
        return hidden + self.dropout(self.mlp(self.mlp_norm(hidden)))


class AttentionTrunk(nn.Module):
    """[batch, time, hidden] -> [batch, time, hidden], causal."""

    def __init__(self, hidden: int, blocks: int, dropout: float = 0.1) -> None:
        super().__init__()
        if hidden % max(1, hidden // _HEAD_DIM):
            raise ValueError(f"hidden = {hidden}: must be a multiple of {_HEAD_DIM}, or less than it")
        self.blocks = nn.ModuleList(_Block(hidden, dropout) for _ in range(blocks))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, hidden: Tensor) -> Tensor:
        """Whole sequences from their beginning."""
        position = torch.arange(hidden.shape[1], device=hidden.device)[None]
        for block in self._layers():
            query, key, value = block.project(hidden, position)
            attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            hidden = block.finish(hidden, attended)
        return self.norm(hidden)

    def step(self, hidden: Tensor, state: AttentionState) -> Tensor:
        """[batch, hidden] -> [batch, hidden]; the state grows by one step."""
        return self.prefill(hidden[:, None], state)

    def prefill(self, hidden: Tensor, state: AttentionState) -> Tensor:
        """[batch, time, hidden] -> [batch, hidden] of the last step; the state grows by all of them."""
        steps = hidden.shape[1]
        state.reserve(steps)
        position = state.lengths[:, None] + torch.arange(steps, device=hidden.device)
        capacity = torch.arange(state.keys[0].shape[2], device=hidden.device)
        visible = (capacity <= position[..., None])[:, None]
        rows = torch.arange(len(hidden), device=hidden.device)[:, None]
        for index, block in enumerate(self._layers()):
            query, key, value = block.project(hidden, position)
            state.keys[index][rows, :, position] = key.transpose(1, 2)
            state.values[index][rows, :, position] = value.transpose(1, 2)
            attended = functional.scaled_dot_product_attention(
                query, state.keys[index], state.values[index], attn_mask=visible
            )
            hidden = block.finish(hidden, attended)
        state.lengths += steps
        return self.norm(hidden[:, -1])

    def states_after(self, hidden: Tensor, positions: list[int]) -> Iterator[tuple[list[int], AttentionState]]:
        """For one sequence [time, hidden]: the states after the given steps, grouped into batches."""
        whole = self.new_state(1)
        self.prefill(hidden[None], whole)
        group = max(1, _KEYS // len(hidden))
        for start in range(0, len(positions), group):
            chosen = positions[start : start + group]
            lengths = torch.tensor(chosen, device=hidden.device) + 1
            copies = [
                [tensor.expand(len(chosen), -1, -1, -1).clone() for tensor in kept]
                for kept in (whole.keys, whole.values)
            ]
            yield chosen, AttentionState(copies[0], copies[1], lengths)

    def new_state(self, batch: int, capacity: int = 256) -> AttentionState:
        """The state before a sequence."""
        first = self._layers()[0]
        hidden = first.out.in_features
        size = (batch, first.heads, capacity, hidden // first.heads)
        device = first.out.weight.device
        keys, values = ([torch.zeros(size, device=device) for _ in self.blocks] for _ in range(2))
        return AttentionState(keys, values, torch.zeros(batch, dtype=torch.int64, device=device))

    def _layers(self) -> list[_Block]:
        return list(self.blocks)  # type: ignore[arg-type]


def _rotate(x: Tensor, position: Tensor) -> Tensor:
    """Rotary positions: ``x`` [batch, heads, time, head_dim], ``position`` [batch, time]."""
    half = x.shape[-1] // 2
    rate = _BASE ** -(torch.arange(half, device=x.device) / half)
    angle = (position[:, None, :, None] * rate).to(torch.float32)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half : 2 * half]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, x[..., 2 * half :]], -1)
