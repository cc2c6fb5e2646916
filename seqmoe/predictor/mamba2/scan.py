"""The state-space recurrence of Mamba2: a whole sequence as matrix products over chunks, or one step in place.

Source: Dao and Gu, "Transformers are SSMs" (arXiv 2405.21060), section 6. On a GPU mamba-ssm's kernels do the same work
where they import (`kernels`).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from seqmoe.predictor.mamba2 import kernels

CHUNK = 64


def scan_sequence(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor | None = None, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """The outputs of a sequence and the state after it.

    ``x`` [batch, time, heads, head_dim]; ``dt`` float32 [batch, time, heads], positive; ``a`` float32 [heads],
    negative; ``b`` and ``c`` [batch, time, state_size], shared by all heads; ``state`` float32
    [batch, heads, head_dim, state_size], zero if None. Returns y like ``x`` and a state like ``state``.
    """
    if kernels.usable(x):
        return kernels.scan_sequence(x, dt, a, b, c, state, chunk)
    return chunked_scan(x, dt, a, b, c, state, chunk)


def scan_step(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> Tensor:
    """One step, [batch, heads, head_dim]; ``state`` float32 [batch, heads, head_dim, state_size] changes in place.

    ``x`` [batch, heads, head_dim], ``dt`` [batch, heads], ``b`` and ``c`` [batch, state_size].
    """
    if kernels.usable(x):
        return kernels.scan_step(x, dt, a, b, c, state)
    batch, heads, head_dim, _ = state.shape
    state.mul_((dt * a).exp()[:, :, None, None])
    rows = state.view(batch, heads * head_dim, -1)
    rows.baddbmm_((x * dt[..., None]).reshape(batch, -1, 1), b[:, None])
    return torch.bmm(rows, c[:, :, None]).view(batch, heads, head_dim)


def chunked_scan(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor | None = None, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """`scan_sequence` in plain PyTorch, with gradients.

    Within a chunk every step attends to the ones before it, weighted by how much the state has decayed in between;
    from chunk to chunk only the state is carried.
    """
    batch, time, heads, head_dim = x.shape
    chunk = min(chunk, time)
    padding = -time % chunk
    if padding:  # a step with dt = 0 leaves the state as it was
        x, dt, b, c = (functional.pad(v, (0, 0) * (v.dim() - 2) + (0, padding)) for v in (x, dt, b, c))
    chunks = (time + padding) // chunk
    scaled = (x * dt[..., None].to(x.dtype)).view(batch, chunks, chunk, heads, head_dim).transpose(2, 3)
    b, c = (v.reshape(batch, chunks, 1, chunk, -1) for v in (b, c))
    decay = (dt * a).view(batch, chunks, chunk, heads).transpose(2, 3).cumsum(-1)  # log, from the chunk's start

    later = torch.ones(chunk, chunk, dtype=torch.bool, device=x.device).triu(1)
    between = (decay[..., :, None] - decay[..., None, :]).masked_fill(later, -torch.inf).exp()
    y = torch.matmul(torch.matmul(c, b.transpose(-1, -2)) * between.to(c.dtype), scaled)

    to_end = (decay[..., -1:] - decay).exp()[..., None].to(x.dtype)
    gained = torch.matmul((scaled * to_end).transpose(-1, -2), b).float()
    kept = decay[..., -1].exp()[..., None, None]
    carried = torch.zeros_like(gained[:, 0]) if state is None else state
    before = []
    for index in range(chunks):
        before.append(carried)
        carried = carried * kept[:, index] + gained[:, index]
    past = torch.stack(before, 1).to(c.dtype).transpose(-1, -2)
    y = y + torch.matmul(c, past) * decay.exp()[..., None].to(x.dtype)
    return y.transpose(2, 3).reshape(batch, chunks * chunk, heads, head_dim)[:, :time], carried
