"""The identity of an answer: one hash over the token ids that a system emitted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np


def tokens_sha256(tokens: Iterable[int]) -> str:
    """SHA-256 (hex) over token ids as little-endian int32."""
    return hashlib.sha256(np.asarray(list(tokens), dtype="<i4").tobytes()).hexdigest()
