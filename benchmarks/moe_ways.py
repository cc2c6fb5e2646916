"""Ways to compute the MoE of a few tokens on one CPU thread: ours, PyTorch's and KTransformers'.

Each is built with a ``Layer`` and called with x [T, H] float32, weights [T, K] float32 and the chosen experts [T, K];
it returns [T, H]. All read the same weights, which lie in 2 MiB pages, except KTransformers, which packs its own copy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from seqmoe.core.moe import moe_experts, reduce_contributions


@dataclass(frozen=True)
class Layer:
    """``gate_up`` [E, 2I, H] and ``down`` [E, H, I], float32 or bfloat16."""

    gate_up: torch.Tensor
    down: torch.Tensor

    @staticmethod
    def random(experts: int, hidden: int, width: int, dtype: torch.dtype) -> Layer:
        """Outputs of size 1 for inputs of size 1."""
        generator = torch.Generator().manual_seed(0)

        def pool(*shape):
            # Memory from numpy, which asks the kernel for large pages; PyTorch does not.
            bits = np.empty(shape, np.uint16 if dtype == torch.bfloat16 else np.float32)
            tensor = torch.from_numpy(bits).view(dtype)
            return tensor.copy_(torch.randn(shape, generator=generator) / shape[-1] ** 0.5)

        return Layer(pool(experts, 2 * width, hidden), pool(experts, hidden, width))


def _gated(product: torch.Tensor) -> torch.Tensor:
    gate, up = product.chunk(2, -1)
    return functional.silu(gate) * up


class ThroughSlots:
    """Our kernel; the slot of an expert is its index."""

    def __init__(self, layer: Layer) -> None:
        bits = torch.uint16 if layer.down.dtype == torch.bfloat16 else torch.float32
        self._pools = layer.gate_up.view(bits).numpy(), layer.down.view(bits).numpy()

    def __call__(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """[T, H]."""
        slots = chosen.to(torch.int32).numpy()
        contribution = np.empty((*slots.shape, x.shape[1]), np.float32)
        out = np.empty(x.shape, np.float32)
        moe_experts(x.numpy(), *self._pools, slots, weights.numpy(), contribution)
        reduce_contributions(contribution, out)
        return torch.from_numpy(out)


class LinearLoop:
    """``F.linear``, expert after expert, with the tokens of each."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer

    def __call__(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """[T, H]."""
        x, out = x.to(self._layer.down.dtype), torch.zeros_like(x)
        for expert in chosen.unique().tolist():
            token, rank = torch.where(chosen == expert)
            middle = _gated(functional.linear(x[token], self._layer.gate_up[expert]))
            result = functional.linear(middle, self._layer.down[expert])
            out.index_add_(0, token, result.float() * weights[token, rank, None])
        return out


class GatherBmm:
    """``index_select`` of the experts, then ``bmm``: Transformers' batched_mm."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer

    def __call__(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """[T, H]."""
        experts, choices = chosen.flatten(), chosen.shape[1]
        rows = x.to(self._layer.down.dtype).repeat_interleave(choices, 0)[..., None]
        product = torch.bmm(self._layer.gate_up.index_select(0, experts), rows)[..., 0]
        out = torch.bmm(self._layer.down.index_select(0, experts), _gated(product)[..., None])[..., 0]
        return (out.view(*chosen.shape, -1).float() * weights[..., None]).sum(1)


class GroupedMm:
    """``grouped_mm`` over rows in the order of their experts: Transformers' default."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer

    def __call__(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """[T, H]."""
        expert, order = torch.sort(chosen.flatten())
        bounds = torch.arange(len(self._layer.down))
        ends = torch.searchsorted(expert, bounds, right=True).to(torch.int32)
        rows = x.to(self._layer.down.dtype)[order // chosen.shape[1]]
        middle = _gated(functional.grouped_mm(rows, self._layer.gate_up.transpose(1, 2), offs=ends))
        result = functional.grouped_mm(middle, self._layer.down.transpose(1, 2), offs=ends)
        out = torch.empty(result.shape, dtype=torch.float32)
        out[order] = result.float()
        return (out.view(*chosen.shape, -1) * weights[..., None]).sum(1)


class KTransformers:
    """kt-kernel's bfloat16 layer (AMX where the CPU has it, else the best it chooses) on one thread."""

    def __init__(self, layer: Layer, top_k: int) -> None:
        from kt_kernel import kt_kernel_ext as extension

        experts, hidden, width = layer.down.shape
        pool = extension.WorkerPoolConfig()
        pool.subpool_count, pool.subpool_numa_map, pool.subpool_thread_count = 1, [0], [1]
        self._cpu = extension.CPUInfer(pool)
        self._on_device = torch.zeros(experts, dtype=torch.bool)
        config = extension.moe.MOEConfig(experts, top_k, hidden, width, self._on_device.data_ptr())
        config.layer_idx, config.max_len, config.pool = 0, 64, self._cpu.backend_
        gate, up = (part.contiguous() for part in layer.gate_up.chunk(2, 1))
        config.gate_projs, config.up_projs, config.down_projs = (
            [[expert.data_ptr() for expert in matrices]] for matrices in (gate, up, layer.down)
        )
        self._moe = extension.moe.AMXBF16_MOE(config)
        order = torch.arange(experts)
        self._cpu.submit(self._moe.load_weights_task(order.data_ptr()))
        self._cpu.sync()

    def __call__(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """[T, H]."""
        tokens, x = torch.tensor([len(x)], dtype=torch.int32), x.bfloat16()
        out = torch.empty_like(x)
        pointers = (chosen.data_ptr(), weights.data_ptr(), x.data_ptr(), out.data_ptr())
        self._cpu.submit(self._moe.forward_task(tokens.data_ptr(), chosen.shape[1], *pointers, False))
        self._cpu.sync()
        return out.float()


class MemoryFloor:
    """One pass over as many bytes as the chosen experts have, of experts side by side, so that Python takes no time.

    The bitwise or of 64-bit words is numpy's fastest reading.
    """

    def __init__(self, layer: Layer) -> None:
        self._experts = len(layer.down)
        self._words = [
            matrices.view(torch.int16 if matrices.dtype == torch.bfloat16 else torch.int32)
            .numpy()
            .reshape(self._experts, -1)
            .view(np.uint64)
            for matrices in (layer.gate_up, layer.down)
        ]

    def __call__(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> None:
        """Nothing: only the reading counts."""
        experts = chosen.flatten().tolist()
        count = len(set(experts))
        start = experts[0] % (self._experts - count + 1)
        for words in self._words:
            np.bitwise_or.reduce(words[start : start + count].reshape(-1))
