"""One Mamba2 mixer: projections, short causal convolution, state-space scan, gated norm."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqmoe.predictor.mamba2.scan import scan_sequence, scan_step

_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class MixerShape:
    """Sizes of a mixer; the inner width is ``expand * hidden``, divided among heads of ``head_dim``."""

    hidden: int
    expand: int = 2
    head_dim: int = 64
    state_size: int = 64
    kernel: int = 4

    def __post_init__(self) -> None:
        if self.inner % self.head_dim:
            raise ValueError(f"head_dim = {self.head_dim}: does not divide the inner width {self.inner}")

    @property
    def inner(self) -> int:
        """Width between the projections."""
        return self.expand * self.hidden

    @property
    def heads(self) -> int:
        """Independent recurrences."""
        return self.inner // self.head_dim

    @property
    def convolved(self) -> int:
        """Channels of the convolution: x, B and C side by side."""
        return self.inner + 2 * self.state_size


@dataclass(frozen=True, slots=True, eq=False)
class MixerState:
    """What a mixer remembers of a sequence, at addresses that never change.

    ``window`` [batch, convolved, kernel], the convolution's last inputs, newest last; ``scan`` float32
    [batch, heads, head_dim, state_size].
    """

    window: Tensor
    scan: Tensor

    def copy_(self, other: MixerState) -> None:
        """Become equal to ``other``, in place."""
        self.window.copy_(other.window)
        self.scan.copy_(other.scan)

    def zero_(self) -> None:
        """Forget the sequence, in place."""
        self.window.zero_()
        self.scan.zero_()


class Mamba2Mixer(nn.Module):
    """[batch, time, hidden] -> [batch, time, hidden], causal. One group of B and C, shared by all heads."""

    def __init__(self, shape: MixerShape) -> None:
        super().__init__()
        self.shape = shape
        self.in_proj = nn.Linear(shape.hidden, shape.inner + shape.convolved + shape.heads, bias=False)
        self.conv_weight = nn.Parameter(torch.empty(shape.convolved, shape.kernel))
        self.conv_bias = nn.Parameter(torch.zeros(shape.convolved))
        self.dt_bias = nn.Parameter(torch.empty(shape.heads))
        self.A_log = nn.Parameter(torch.arange(1, shape.heads + 1, dtype=torch.float32).log())
        self.D = nn.Parameter(torch.ones(shape.heads))
        self.norm_weight = nn.Parameter(torch.ones(shape.inner))
        self.out_proj = nn.Linear(shape.inner, shape.hidden, bias=False)
        nn.init.uniform_(self.conv_weight, -(shape.kernel**-0.5), shape.kernel**-0.5)
        # Time scales between 10 and 1000 steps at the start, as the Mamba2 paper initialises them.
        dt = torch.empty(shape.heads).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        with torch.no_grad():
            self.dt_bias.copy_(dt + torch.log(-torch.expm1(-dt)))

    def forward(self, hidden: Tensor, state: MixerState | None = None) -> Tensor:
        """A whole sequence; ``state``, if given, is where it starts from, and is left where it ends."""
        shape, time = self.shape, hidden.shape[1]
        gate, mixed, dt = self.in_proj(hidden).split([shape.inner, shape.convolved, shape.heads], -1)
        mixed = mixed.transpose(1, 2)
        if state is None:
            window = functional.pad(mixed, (shape.kernel - 1, 0))
        else:
            window = torch.cat([state.window[:, :, 1:].to(mixed.dtype), mixed], -1)
            state.window.copy_(window[:, :, -shape.kernel :] if time > 0 else state.window)
        mixed = functional.conv1d(window, self.conv_weight[:, None], self.conv_bias, groups=shape.convolved)
        mixed = functional.silu(mixed).transpose(1, 2)
        x, b, c = mixed.split([shape.inner, shape.state_size, shape.state_size], -1)
        x = x.unflatten(-1, (shape.heads, shape.head_dim))
        dt = functional.softplus(dt.float() + self.dt_bias)
        y, scan = scan_sequence(x, dt, -self.A_log.exp(), b, c, None if state is None else state.scan)
        if state is not None:
            state.scan.copy_(scan)
        y = y + x * self.D[:, None].to(x.dtype)
        return self._leave(y.flatten(2), gate)

    def step(self, hidden: Tensor, state: MixerState) -> Tensor:
        """One step [batch, hidden] -> [batch, hidden]; ``state`` is updated in place."""
        shape = self.shape
        gate, mixed, dt = self.in_proj(hidden).split([shape.inner, shape.convolved, shape.heads], -1)
        window = state.window
        window.copy_(torch.roll(window, -1, -1))
        window[:, :, -1] = mixed
        mixed = functional.silu(torch.einsum("bck,ck->bc", window, self.conv_weight) + self.conv_bias)
        x, b, c = mixed.split([shape.inner, shape.state_size, shape.state_size], -1)
        x = x.unflatten(-1, (shape.heads, shape.head_dim))
        dt = functional.softplus(dt + self.dt_bias)
        y = scan_step(x, dt, -self.A_log.exp(), b, c, state.scan)
        y = torch.addcmul(y, x, self.D[:, None])
        return self._leave(y.flatten(1), gate)

    def new_state(self, batch: int) -> MixerState:
        """The state before a sequence."""
        shape, device = self.shape, self.D.device
        return MixerState(
            torch.zeros(batch, shape.convolved, shape.kernel, device=device),
            torch.zeros(batch, shape.heads, shape.head_dim, shape.state_size, device=device),
        )

    def _leave(self, y: Tensor, gate: Tensor) -> Tensor:
        y = y * functional.silu(gate)
        scale = torch.rsqrt(y.float().square().mean(-1, keepdim=True) + _EPSILON)
        return self.out_proj(y * scale.to(y.dtype) * self.norm_weight.to(y.dtype))
