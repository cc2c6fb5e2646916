"""The operator `seqmoe_graph::experts`, built once with the machine's C++ compiler, which Inductor needs as well."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import torch
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler
from torch.utils.cpp_extension import TORCH_LIB_PATH, include_paths
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from seqmoe.runtime.graph.store import Store, source_digest
from seqmoe.spec.errors import InputError

NAME = "seqmoe_graph"
SOURCE = Path(__file__).parent / "experts_op.cpp"


class Target:
    """Where a model's experts find the tensor ``target`` of the call in progress; one per model."""

    tensor: torch.Tensor


def compiler() -> str:
    """The C++ compiler, ``$CXX`` or g++. Raises `InputError` where there is none."""
    try:
        return str(get_cpp_compiler())
    except InvalidCxxCompiler:
        raise InputError(
            "execution 'graph' on a CPU compiles the decode step with a C++ compiler, and none was found: install g++ "
            "or set CXX; or use execution 'sync'"
        ) from None


def load_operator(store: Store) -> None:
    """Make `seqmoe_graph::experts` known to PyTorch."""
    if hasattr(torch.ops.seqmoe_graph, "experts"):
        return
    torch.ops.load_library(str(store.file(f"experts-{source_digest([SOURCE])}.so", _build)))

    @torch.library.register_fake("seqmoe_graph::experts")  # type: ignore[untyped-decorator]
    def shape(target: Any, hidden: torch.Tensor, index: Any, weights: Any, layer: int) -> torch.Tensor:
        return torch.empty_like(hidden)


def _build(target: Path) -> None:
    includes = [f"-isystem{path}" for path in include_paths()]
    libraries = [f"-L{TORCH_LIB_PATH}", "-ltorch_cpu", "-ltorch", "-lc10"]
    command = [compiler(), "-O2", "-std=c++20", "-fPIC", "-shared", *includes, str(SOURCE), "-o", str(target)]
    done = subprocess.run([*command, *libraries], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InputError(f"execution 'graph': {SOURCE.name} does not compile: {done.stderr.strip()[:2000]}")


def _experts_forward(
    module: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """The experts of one layer, [T, hidden] -> [T, hidden], inside of a traced step."""
    result: torch.Tensor = torch.ops.seqmoe_graph.experts(
        module.seqmoe_target.tensor,
        hidden_states.to(torch.float32).contiguous(),
        top_k_index.to(torch.int64).contiguous(),
        top_k_weights.to(torch.float32).contiguous(),
        module.seqmoe_layer,
    )
    return result.to(hidden_states.dtype)


ALL_EXPERTS_FUNCTIONS.register(NAME, _experts_forward)
