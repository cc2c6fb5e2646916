"""KTransformers' CPU MoE layer without the system around it: one token through the top-8 of 128 experts, in bfloat16.

Prints one JSON object: the median time over calls that each choose other experts, and the error against float64.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import statistics
import sys
import time
from typing import Any

import kt_kernel
import torch
from kt_kernel import kt_kernel_ext as native

EXPERTS, TOP_K, HIDDEN, WIDTH = 128, 8, 512, 192
CALLS, WARM_UP = 200, 20
_LONGEST = 512


class Layer:
    """One MoE layer of random experts behind kt-kernel's low-level interface."""

    def __init__(self, threads: int) -> None:
        self.gate = _matrices(WIDTH, HIDDEN)
        self.up = _matrices(WIDTH, HIDDEN)
        self.down = _matrices(HIDDEN, WIDTH)
        pool = native.WorkerPoolConfig()
        pool.subpool_count, pool.subpool_numa_map, pool.subpool_thread_count = 1, [0], [threads]
        self._engine = native.CPUInfer(pool)
        self._on_gpu = torch.zeros(EXPERTS, dtype=torch.bool)
        config = native.moe.MOEConfig(EXPERTS, TOP_K, HIDDEN, WIDTH, self._on_gpu.data_ptr())
        config.layer_idx, config.max_len, config.pool = 0, _LONGEST, self._engine.backend_
        config.gate_projs, config.up_projs, config.down_projs = (
            [[matrix.data_ptr() for matrix in matrices]] for matrices in (self.gate, self.up, self.down)
        )
        self._layer = native.moe.AMXBF16_MOE(config)
        order = torch.arange(EXPERTS, dtype=torch.int64)
        self._wait(self._layer.load_weights_task(order.data_ptr()))

    def forward(self, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """``x`` bfloat16 [1, hidden], ``experts`` int64 and ``weights`` float32 [1, top_k] -> bfloat16 [1, hidden]."""
        out, tokens = torch.empty_like(x), torch.tensor([1], dtype=torch.int32)
        addresses = [tensor.data_ptr() for tensor in (experts, weights, x, out)]
        self._wait(self._layer.forward_task(tokens.data_ptr(), TOP_K, *addresses, False))
        return out

    def reference(self, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """The same in float64."""
        out = torch.zeros(HIDDEN, dtype=torch.float64)
        for expert, weight in zip(experts[0].tolist(), weights[0].tolist(), strict=True):
            gate, up, down = (matrices[expert].double() for matrices in (self.gate, self.up, self.down))
            hidden = x[0].double()
            out += weight * (down @ (torch.nn.functional.silu(gate @ hidden) * (up @ hidden)))
        return out[None]

    def _wait(self, task: Any) -> None:
        self._engine.submit(task)
        self._engine.sync()


def _matrices(rows: int, columns: int) -> torch.Tensor:
    return (torch.randn(EXPERTS, rows, columns) / columns**0.5).bfloat16()


def measure(threads: int) -> dict[str, Any]:
    """Time and error of one layer."""
    torch.manual_seed(0)
    layer = Layer(threads)
    times, errors = [], []
    for call in range(WARM_UP + CALLS):
        x = torch.randn(1, HIDDEN).bfloat16()
        experts, weights = torch.randperm(EXPERTS)[None, :TOP_K].contiguous(), torch.rand(1, TOP_K)
        start = time.perf_counter_ns()
        out = layer.forward(x, experts, weights)
        if call >= WARM_UP:
            times.append((time.perf_counter_ns() - start) / 1e3)
            right = layer.reference(x, experts, weights)
            errors.append(float((out.double() - right).abs().mean() / right.abs().mean()))
    return {
        "microseconds": round(statistics.median(times), 1),
        "relative_error": round(statistics.mean(errors), 5),
        "calls": CALLS,
        "threads": threads,
        "variant": kt_kernel.__cpu_variant__,
        "version": f"kt-kernel {importlib.metadata.version('kt-kernel')}",
    }


if __name__ == "__main__":
    # The library reports to stdout, from C++ too; what is printed there must be the result alone.
    result = os.dup(1)
    os.dup2(2, 1)
    line = json.dumps(measure(threads=int(sys.argv[1]) if len(sys.argv) > 1 else 1))
    ctypes.CDLL(None).fflush(None)
    os.write(result, line.encode() + b"\n")
