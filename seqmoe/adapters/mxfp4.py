"""MXFP4, the type of GPT-OSS's released experts: blocks of 32 four-bit floats that share a power of two.

Source: OCP Microscaling Formats (MX) Specification 1.0; packing as in the released checkpoints.
"""

from __future__ import annotations

import torch

BLOCK = 32
# Sign, two bits of exponent, one of mantissa.
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_VALUES = torch.tensor([*_MAGNITUDES, *(-value for value in _MAGNITUDES)])


def unpack(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Values, float32 [rows, columns], of ``blocks`` uint8 [rows, columns / 32, 16], ``scales`` [rows, columns / 32].

    A byte holds two values, the first in its low half; a scale is an exponent of two plus 127. Every value is exact in
    bfloat16 too.
    """
    halves = torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2)
    values = torch.ldexp(_VALUES[halves.int()], scales.int().unsqueeze(-1) - 127)
    return values.flatten(-2)
