"""Which memory was exhausted, by the last words of a program: the device's, pinned host memory, or the host's."""

from __future__ import annotations

import re

_WORDS = (
    ("host_pinned", r"cudaHostAlloc|cudaHostRegister|pin(?:ned)?[ _]memory"),
    ("device", r"(?:CUDA|HIP)\b.*out of memory|CUDA_ERROR_OUT_OF_MEMORY|OutOfMemoryError|cudaMalloc\b.*out of memory"),
    ("host", r"MemoryError|bad_alloc|[Cc]annot allocate memory|can't allocate memory|[Oo]ut of memory"),
)


def exhausted(text: str) -> str | None:
    """``device``, ``host_pinned`` or ``host``; None where the words speak of no memory that was too small."""
    if not re.search(_WORDS[1][1] + "|" + _WORDS[2][1], text):
        return None
    return next(place for place, words in _WORDS if re.search(words, text))
