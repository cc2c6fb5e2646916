"""Kernels compiled ahead of time, for a GPU that need not be there: the registers they take and what spills."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from dataclasses import dataclass

import torch
from triton._utils import canonicalize_dtype
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from seqmoe.runtime.kernels.call import Call
from seqmoe.runtime.kernels.language import INTERPRETED, triton
from seqmoe.spec.errors import InputError

_WARP = 32
# What tensors at fixed addresses of their own are aligned to, as at a launch.
_ALIGNMENT = [["tt.divisibility", 16]]


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the assembler said of one kernel, or why there is none (``error``).

    ``registers`` of a thread, ``spilled`` bytes of them (stores and loads), ``shared`` bytes of memory of a block; and
    counted in the kernel's PTX: ``wide`` accesses of 16 bytes (loads, stores), ``ordered`` accesses at system scope
    (acquire loads, release stores), relaxed stores there, and read-modify-writes there.
    """

    registers: int = 0
    spilled: tuple[int, int] = (0, 0)
    shared: int = 0
    wide: tuple[int, int] = (0, 0)
    ordered: tuple[int, int] = (0, 0)
    relaxed: int = 0
    system_atomics: int = 0
    error: str = ""


def compile_call(call: Call, architecture: int) -> Compiled:
    """Compile for compute capability ``architecture`` (90 for 9.0) as a launch would. Takes 0.2 to 3 seconds.

    `InputError` where kernels are interpreted: the same process cannot do both.
    """
    if INTERPRETED:
        raise InputError("TRITON_INTERPRET is set: kernels are interpreted, not compiled; unset it")
    told = io.StringIO()
    with tempfile.TemporaryDirectory() as cache, triton.knobs.cache.scope(), triton.knobs.nvidia.scope():
        triton.knobs.cache.dir = cache
        triton.knobs.nvidia.dump_ptxas_log = True
        try:
            with contextlib.redirect_stdout(told):
                kernel = triton.compile(_source(call), GPUTarget("cuda", architecture, _WARP), call.options)
        except Exception as error:  # whatever a compiler fails with is the result
            reason = (str(error).strip().splitlines() or ["no reason given"])[-1]
            return Compiled(error=f"{type(error).__name__}: {reason}")
    return _read(kernel.asm["ptx"], told.getvalue(), int(kernel.metadata.shared))


def _source(call: Call) -> ASTSource:
    """The kernel with the types of its arguments; the constants as their values."""
    signature, constants, alignment = {}, {}, {}
    for index, name in enumerate(call.kernel.arg_names):
        value = call.constants[name] if name in call.constants else call.arguments[name]
        if name in call.constants or value is None:
            signature[name], constants[(index,)] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name], alignment[(index,)] = f"*{canonicalize_dtype(value.dtype)}", _ALIGNMENT
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
    return ASTSource(call.kernel, signature, constants, alignment)


def _read(ptx: str, log: str, shared: int) -> Compiled:
    registers = re.search(r"Used (\d+) registers", log)
    spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    if registers is None or spilled is None:
        return Compiled(error=f"the assembler did not say what it used: {log.strip()[:200]!r}")

    def count(pattern: str) -> int:
        return len(re.findall(pattern, ptx))

    return Compiled(
        registers=int(registers[1]),
        spilled=(int(spilled[1]), int(spilled[2])),
        shared=shared,
        wide=(
            count(r"\bld\.global\S*\.v4\.b32") + count(r"cp\.async\.c[ag]\.shared\.global .*, 0x10,"),
            count(r"\bst\.global\S*\.v4\.b32"),
        ),
        ordered=(count(r"\bld\.acquire\.sys\."), count(r"\bst\.release\.sys\.")),
        relaxed=count(r"\bst\.relaxed\.sys\."),
        system_atomics=count(r"\batom\.\S*\bsys\b"),
    )
