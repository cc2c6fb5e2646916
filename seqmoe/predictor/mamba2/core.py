"""A Mamba2 network of PyTorch's in the C++ core, for one step at a time on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqmoe.core.mamba2 import Mamba2Block, Mamba2Stepper
from seqmoe.predictor.mamba2.mixer import Mamba2Mixer, MixerState
from seqmoe.predictor.mamba2.trunk import Mamba2Trunk, TrunkState

if TYPE_CHECKING:
    from seqmoe.predictor.network import SequenceNetwork  # it imports the trunk beside this file

# The core works on whole vectors.
_MULTIPLE, _HEAD_MULTIPLE = 16, 4


def stepper_of(network: SequenceNetwork, instructions: str = "") -> Mamba2Stepper | None:
    """The network in the core, at the state before a sequence; None where the core cannot do what the network does.

    That is another trunk, device or type than Mamba2 in float32 on the CPU, steps that are predicted directly
    (``ahead``), or sizes that are no whole vectors. Matrices are shared with the network, all else is copied.
    """
    trunk = network.trunk
    if not isinstance(trunk, Mamba2Trunk) or network.shape.ahead or not _fits(trunk):
        return None
    if any(p.dtype != torch.float32 or p.device.type != "cpu" for p in network.parameters()):
        return None
    enter = np.ascontiguousarray(_array(network.enter.weight).T) * np.float32(network.shape.top_k)
    mixers = [mixer for mixer in trunk.mixers if isinstance(mixer, Mamba2Mixer)]
    norms = [_array(norm) for norm in trunk.norms]
    return Mamba2Stepper(
        network.shape.experts,
        network.shape.top_k,
        (enter, _array(network.enter.bias)),
        [_block(norm, mixer) for norm, mixer in zip(norms, mixers, strict=False)],
        norms[-1],
        _linear(network.leave),
        None if network.leave_use is None else _linear(network.leave_use),
        instructions,
    )


def state_in(stepper: Mamba2Stepper) -> TrunkState:
    """The stepper's own state as that of a PyTorch trunk with one sequence: a prefill goes into it, in place."""
    # Views are made in numpy: those of PyTorch would keep the stepper past the interpreter's end.
    windows = [torch.from_numpy(window.T[None]) for window, _ in stepper.states]
    scans = [torch.from_numpy(scan[None]) for _, scan in stepper.states]
    return TrunkState([MixerState(*pair) for pair in zip(windows, scans, strict=True)])


def _fits(trunk: Mamba2Trunk) -> bool:
    shapes = [mixer.shape for mixer in trunk.mixers if isinstance(mixer, Mamba2Mixer)]
    return bool(shapes) and all(
        size % _MULTIPLE == 0 and shape.head_dim % _HEAD_MULTIPLE == 0
        for shape in shapes
        for size in (shape.hidden, shape.inner, shape.state_size)
    )


def _block(norm: NDArray[np.float32], mixer: Mamba2Mixer) -> Mamba2Block:
    return Mamba2Block(
        norm,
        _array(mixer.in_proj.weight),
        np.ascontiguousarray(_array(mixer.conv_weight).T),
        _array(mixer.conv_bias),
        _array(mixer.dt_bias),
        -np.exp(_array(mixer.A_log)),
        _array(mixer.D),
        _array(mixer.norm_weight),
        _array(mixer.out_proj.weight),
    )


def _linear(linear: nn.Linear) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return _array(linear.weight), _array(linear.bias)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().contiguous().numpy()
    return array
