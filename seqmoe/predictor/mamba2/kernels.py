"""mamba-ssm's CUDA kernels, where they import: the same results as `scan`, faster on a GPU."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from torch import Tensor

_log = logging.getLogger(__name__)


def usable(x: Tensor) -> bool:
    """Whether the kernels can take this tensor: it is on a GPU, and mamba-ssm is installed there."""
    return bool(x.is_cuda) and _kernels() is not None


def scan_sequence(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor | None, chunk: int
) -> tuple[Tensor, Tensor]:
    """`scan.chunked_scan` by ``mamba_chunk_scan_combined``."""
    y, after = _loaded()[0](
        x, dt.to(x.dtype), a, b[:, :, None], c[:, :, None], chunk, initial_states=state, return_final_states=True
    )
    return y, after.float()


def scan_step(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> Tensor:
    """`scan.scan_step` by ``selective_state_update``, which takes a decay per channel and state."""
    _, heads, head_dim, state_size = state.shape
    y: Tensor = _loaded()[1](
        state,
        x,
        dt[..., None].expand(-1, -1, head_dim),
        a[:, None, None].expand(heads, head_dim, state_size),
        b[:, None],
        c[:, None],
    )
    return y


def _loaded() -> tuple[Any, Any]:
    kernels = _kernels()
    if kernels is None:
        raise RuntimeError("mamba-ssm's kernels are not installed; ask `usable` first")
    return kernels


@cache
def _kernels() -> tuple[Any, Any] | None:
    try:
        from mamba_ssm.ops.triton.selective_state_update import selective_state_update
        from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined
    except ImportError as error:
        _log.info("mamba-ssm's kernels do not import (%s): the scan runs in plain PyTorch", error)
        return None
    return mamba_chunk_scan_combined, selective_state_update
