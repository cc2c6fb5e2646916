"""KTransformers' CPU MoE layer without the system around it: one token through the top-8 of 128 experts, in bfloat16.

Prints one JSON object: the fastest window's median time over calls that each choose other experts, and the error
against float64. The library's threads wait by spinning: where another process takes their core, single calls take 20
to 100 times as long, and the median of a window that was left alone is what the layer takes.
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
# A window is shorter than the time that a scheduler leaves a process alone, and such a time follows a pause.
WINDOWS, CALLS, WARM_UP = 10, 15, 20
_PAUSE_SECONDS = 0.05
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
    matrices: torch.Tensor = torch.randn(EXPERTS, rows, columns) / columns**0.5
    return matrices.bfloat16()


def _token() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A token, and experts and weights that differ from the last call's."""
    return torch.randn(1, HIDDEN).bfloat16(), torch.randperm(EXPERTS)[None, :TOP_K].contiguous(), torch.rand(1, TOP_K)


def measure(threads: int) -> dict[str, Any]:
    """Time and error of one layer; the times are medians of windows, the fastest and the middle one."""
    torch.manual_seed(0)
    layer = Layer(threads)
    for _ in range(WARM_UP):
        layer.forward(*_token())
    medians, errors = [], []
    for _ in range(WINDOWS):
        tokens = [_token() for _ in range(CALLS)]
        time.sleep(_PAUSE_SECONDS)
        times, outs = [], []
        for token in tokens:
            start = time.perf_counter_ns()
            outs.append(layer.forward(*token))
            times.append((time.perf_counter_ns() - start) / 1e3)
        medians.append(statistics.median(times))
        for token, out in zip(tokens, outs, strict=True):
            right = layer.reference(*token)
            errors.append(float((out.double() - right).abs().mean() / right.abs().mean()))
    return {
        "microseconds": round(min(medians), 1),
        "median_window": round(statistics.median(medians), 1),
        "relative_error": round(statistics.mean(errors), 5),
        "windows": WINDOWS,
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
