"""A Mamba2 network one step at a time for one sequence, and its rollouts, on one CPU thread without the GIL.

It is the network of `seqmoe.predictor.network` with the trunk of `seqmoe.predictor.mamba2`, in float32: one layer range
of ``layers`` layers with ``experts`` experts each, in and out as [layers, experts].

``Mamba2Stepper(experts, top_k, enter, blocks, norm, leave, use=None, instructions="")``: ``enter``, ``leave`` and
``use`` are pairs of weight [layers * experts, hidden] and bias; ``enter``'s weight is transposed, so that only the rows
of active experts are read, and takes activations as they come. ``use`` is the head of discounted use. Arrays are
float32, C-contiguous, kept and not copied. ``instructions`` as in `seqmoe.core.moe`.

- ``observe(activation)`` takes in a step; ``logits`` and ``use`` (None without its head) are then what it predicts.
- ``forecast(lookahead, lines)`` returns the probabilities float32 [lookahead + 1, layers, experts] of the next step and
  of ``lookahead`` more, by feeding back Psi of the ``top_k`` largest logits. ``lines`` [steps, 2] are slope and offset
  of each step's ``sigmoid(slope * log softmax(logits) + offset)``; steps past the last line use it. The rollout has a
  state of its own: what was observed stays as it is.
- ``states`` are a pair for each block: the convolution's last inputs [taps, inner + 2 state_size], newest last, and the
  scan's state [heads, head_dim, state_size]. These, ``logits`` and ``use`` are views at addresses that never change,
  and may be written. ``reset()`` makes the states zero.

Shapes that do not fit raise ``ValueError``, other types or layouts ``TypeError``; hidden, inner and state_size must be
multiples of 16, head_dim of 4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmoe.core._native import Mamba2Stepper

__all__ = ["Mamba2Block", "Mamba2Stepper"]


class Mamba2Block(NamedTuple):
    """The float32 weights of a residual block, in the order that the stepper takes them."""

    norm: NDArray[np.float32]
    """[hidden], of the block's input."""
    in_proj: NDArray[np.float32]
    """[2 inner + 2 state_size + heads, hidden]: gate, x, B, C and dt."""
    conv_weight: NDArray[np.float32]
    """[taps, inner + 2 state_size], newest last."""
    conv_bias: NDArray[np.float32]
    """[inner + 2 state_size]."""
    dt_bias: NDArray[np.float32]
    """[heads]."""
    a: NDArray[np.float32]
    """[heads], negative: the state decays by exp(dt a)."""
    skip: NDArray[np.float32]
    """[heads], D of the paper."""
    gate_norm: NDArray[np.float32]
    """[inner]."""
    out_proj: NDArray[np.float32]
    """[hidden, inner]."""
