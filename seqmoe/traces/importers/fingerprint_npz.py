"""Decode-time routing in numpy arrays: ``experts`` [tokens, layers, k], ``weights_u8``, ``lengths``, JSON ``meta``."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, RequestTrace, TraceSet
from seqmoe.traces import validate
from seqmoe.traces.importers import fingerprint

FORMAT = "npz with experts, weights_u8, lengths, meta"
_LARGEST = int(np.iinfo(np.int16).max)
_ARRAYS = ("experts", "weights_u8", "lengths", "meta")


def recognises(head: bytes, path: Path) -> bool:
    """Whether the file is a zip archive with this format's arrays, or one too broken to tell."""
    if not head.startswith(b"PK\x03\x04"):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return "experts.npy" in archive.namelist()
    except zipfile.BadZipFile:
        return b"experts.npy" in head


def read(path: Path) -> TraceSet:
    """Read the whole file. The weights are those of a softmax over the chosen experts, rounded to 255ths."""
    try:
        with np.load(path) as stored:
            experts, weights, lengths, meta = (stored[name] for name in _ARRAYS)
        described = json.loads(bytes(meta))
    except (KeyError, OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a complete trace archive ({FORMAT}): {error}") from None
    if experts.ndim != 3 or not experts.size or weights.shape != experts.shape:
        raise InputError(
            f"{path}: experts {experts.shape} and weights_u8 {weights.shape} must both be [tokens, layers, k]"
        )
    if any(array.dtype.kind not in "iu" for array in (experts, weights, lengths)) or lengths.ndim != 1:
        raise InputError(f"{path}: experts, weights_u8 and lengths must be whole numbers, lengths one for each request")
    if experts.min() < 0 or experts.max() > _LARGEST:
        raise InputError(f"{path}: experts from {experts.min()} to {experts.max()}: expected ids from 0 to {_LARGEST}")
    if int(lengths.sum()) != len(experts) or (lengths < 0).any():
        raise InputError(f"{path}: lengths add up to {int(lengths.sum())}, but there are {len(experts)} tokens")
    if not isinstance(described, list) or len(described) != len(lengths):
        raise InputError(f"{path}: meta: expected a list of {len(lengths)} descriptions, one for each request")
    _, layers, top_k = experts.shape
    count = fingerprint.expert_count(layers, top_k, int(experts.max()))
    shares = weights.astype(np.float32) / 255
    validate.routing(experts.astype(np.int16), count, validate.at(str(path)))
    validate.weights(
        shares, experts, fingerprint.ROUTER, validate.at(str(path)),
        max(validate.TOLERANCE, (top_k + 1) / 2 / 255),  # every weight may be half a 255th off
    )  # fmt: skip
    requests = []
    for index, (end, length, about) in enumerate(zip(np.cumsum(lengths), lengths, described, strict=True)):
        rows = slice(int(end) - int(length), int(end))
        requests.append(_request(f"{path}: meta[{index}]", experts[rows], shares[rows], about))
    return TraceSet(
        path.stem, layers, count, top_k, tuple(requests), FORMAT, router=fingerprint.ROUTER,
        model_top_k=fingerprint.model_top_k(layers, top_k),
    )  # fmt: skip


def _request(where: str, experts: Any, weights: Any, about: Any) -> RequestTrace:
    if not isinstance(about, dict):
        raise InputError(f"{where}: expected an object that describes the request")
    prompt = validate.whole_number(about.get("prompt_tokens", 0), f"{where}: prompt_tokens")
    return RequestTrace(
        experts.astype(np.int16),
        np.full(len(experts), DECODE, dtype=np.uint8),
        weights,
        prompt_length=prompt,
        first_position=prompt,
        dataset=str(about.get("dataset", "")),
        identifier=fingerprint.identifier(about),
    )
