"""Decode-time routing in numpy arrays: ``experts`` [tokens, layers, k], ``weights_u8``, ``lengths``, JSON ``meta``."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, RequestTrace, TraceSet

FORMAT = "npz with experts, weights_u8, lengths, meta"
_ARRAYS = ("experts", "weights_u8", "lengths", "meta")


def recognises(head: bytes) -> bool:
    """Whether a file that starts so may be of this format (a zip archive)."""
    return head.startswith(b"PK\x03\x04")


def read(path: Path) -> TraceSet:
    """Read the whole file. It does not tell the number of experts: the largest id that occurs, plus one, is taken."""
    try:
        with np.load(path) as stored:
            experts, weights, lengths, meta = (stored[name] for name in _ARRAYS)
        described = json.loads(bytes(meta))
    except (KeyError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a complete trace archive ({FORMAT}): {error}") from None
    if experts.ndim != 3 or weights.shape != experts.shape:
        raise InputError(
            f"{path}: experts {experts.shape} and weights_u8 {weights.shape} must both be [tokens, layers, k]"
        )
    if int(lengths.sum()) != len(experts) or len(described) != len(lengths):
        raise InputError(f"{path}: lengths add up to {int(lengths.sum())}, but there are {len(experts)} tokens")
    ordered = np.sort(experts, axis=-1)
    repeated = (ordered[..., 1:] == ordered[..., :-1]).any((1, 2))
    if repeated.any():
        raise InputError(f"{path}: token {int(repeated.argmax())}: one expert appears twice in a layer")
    requests = []
    for end, length, about in zip(np.cumsum(lengths), lengths, described, strict=True):
        rows = slice(int(end) - int(length), int(end))
        requests.append(
            RequestTrace(
                experts[rows].astype(np.int16),
                np.full(int(length), DECODE, dtype=np.uint8),
                weights[rows].astype(np.float32) / 255,
                dataset=str(about.get("dataset", "")),
            )
        )
    count = int(experts.max()) + 1
    return TraceSet(path.stem, experts.shape[1], count, experts.shape[2], tuple(requests), source=FORMAT)
