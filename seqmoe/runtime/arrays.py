"""Tensors as the core reads them: numpy views, since exporting a tensor itself costs it 4 us, as long as its kernel."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


def floats(tensor: torch.Tensor) -> NDArray[np.float32]:
    """The same numbers, float32 and contiguous; a copy only where they are not yet.

    ``RuntimeError`` for a tensor that gradients are to flow through.
    """
    if tensor.requires_grad:
        raise RuntimeError("the core computes for inference only: call the model under torch.no_grad()")
    if tensor.dtype is not torch.float32:
        tensor = tensor.float()
    return np.ascontiguousarray(tensor.numpy())
