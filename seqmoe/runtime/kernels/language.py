"""Triton, or an `InputError` that says how to get it; and the types that kernels' parameters are told with.

Every parameter of a kernel is a `Pointer` to elements of a tensor, a `Value` (a number given at launch, or a tensor in
registers), or a ``tl.constexpr``, for which the kernel is compiled.
"""

from __future__ import annotations

from typing import Any

from seqmoe.spec.errors import InputError

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise InputError(
        f"the CUDA runtime's kernels need Triton, which cannot be imported ({error}); pip install 'seqmoe[cuda]'"
    ) from error

# Triton looks annotations up, and finds constants only.
Pointer: Any = tl.constexpr("pointer")
Value: Any = tl.constexpr("value")

# Whether kernels run in Python on CPU tensors: TRITON_INTERPRET=1, read when a kernel is defined.
INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))

__all__ = ["INTERPRETED", "Pointer", "Value", "tl", "triton"]
