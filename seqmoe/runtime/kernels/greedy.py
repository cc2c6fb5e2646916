"""The greedy head: the most likely token of each row of logits, on the device."""

from __future__ import annotations

import torch

from seqmoe.runtime.kernels.call import Call
from seqmoe.runtime.kernels.language import Pointer, tl, triton
from seqmoe.runtime.kernels.order import ascending

_BLOCK = 4096


@triton.jit
def _best_of_block(logits: Pointer, best: Pointer, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr) -> None:
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    here = token < VOCABULARY
    logit = tl.load(logits + row * VOCABULARY + token, mask=here, other=0.0).to(tl.float32)
    # As in PyTorch, NaN is the greatest.
    place = tl.where(logit == logit, ascending(logit), 4294967295)
    place = tl.where(here, (place << 31) | (2147483647 - token).to(tl.int64), -1)
    tl.store(best + row * tl.num_programs(1) + block, tl.max(place, axis=0))


@triton.jit
def _best_of_all(best: Pointer, tokens: Pointer, BLOCKS: tl.constexpr, BLOCK: tl.constexpr) -> None:
    row = tl.program_id(0)
    block = tl.arange(0, BLOCK)
    place = tl.load(best + row * BLOCKS + block, mask=block < BLOCKS, other=-1)
    tl.store(tokens + row, 2147483647 - (tl.max(place, axis=0) & 2147483647))


def workspace(rows: int, vocabulary: int, device: str | torch.device = "cpu") -> torch.Tensor:
    """What `launch` needs between its two kernels, int64 [rows, blocks]."""
    return torch.empty((rows, triton.cdiv(vocabulary, _BLOCK)), dtype=torch.int64, device=device)


def calls(logits: torch.Tensor, best: torch.Tensor, tokens: torch.Tensor) -> tuple[Call, Call]:
    """See `launch`."""
    rows, vocabulary = logits.shape
    blocks = triton.cdiv(vocabulary, _BLOCK)
    if best.shape != (rows, blocks) or tokens.numel() != rows or not logits.is_contiguous():
        raise ValueError(f"logits {list(logits.shape)}, workspace {list(best.shape)}, tokens {list(tokens.shape)}")
    constants = {"VOCABULARY": vocabulary, "BLOCK": _BLOCK}
    first = Call(_best_of_block, (rows, blocks), {"logits": logits, "best": best}, constants, warps=4)
    constants = {"BLOCKS": blocks, "BLOCK": triton.next_power_of_2(blocks)}
    return first, Call(_best_of_all, (rows,), {"best": best, "tokens": tokens}, constants, warps=1)


def launch(logits: torch.Tensor, best: torch.Tensor, tokens: torch.Tensor) -> None:
    """``tokens`` int64 [rows] of ``logits`` [rows, vocabulary], the lowest of equal ones; ``best`` from `workspace`."""
    for each in calls(logits, best, tokens):
        each.launch()
