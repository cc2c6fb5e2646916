"""The one file of a predictor: safetensors, with a description of what is in it as metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from seqmoe.spec.errors import InputError
from seqmoe.spec.files import replacing

SCHEMA = 1
_KEY = "seqmoe_predictor"
_FIELDS = {"schema": int, "kind": str, "geometry": dict, "ranges": list, "settings": dict, "training": dict}

Tensors = dict[str, NDArray[Any]]


def write_container(path: Path, kind: str, tensors: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
    """Write a predictor file, whole or not at all.

    ``about`` has ``geometry`` (layers, experts, top_k) and ``ranges`` (first and last layer of each), perhaps
    ``settings`` (what the kind needs to be built again) and ``training`` (the record of its training).
    """
    unknown = set(about) - set(_FIELDS)
    if unknown or not {"geometry", "ranges"} <= set(about):
        raise ValueError(f"about: {sorted(about)}; geometry and ranges are needed, settings and training may be there")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}; make it first")
    described = {"settings": {}, "training": {}} | dict(about) | {"schema": SCHEMA, "kind": kind}
    stored = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    with replacing(path) as partial:
        partial.write_bytes(save(stored, metadata={_KEY: json.dumps(described)}))


def read_container(path: Path) -> tuple[dict[str, Any], Tensors]:
    """Description and tensors of a predictor file.

    Raises `InputError`, which names the file, where it is absent, cut, foreign, or of a newer version.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such predictor file; `seqmoe predictor train --out {path}` makes one")
    try:
        with safe_open(path, framework="numpy") as stored:
            metadata = stored.metadata() or {}
            about = _description(path, metadata.get(_KEY))
            return about, {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a predictor: {error}; is it truncated?") from None


def _description(path: Path, text: str | None) -> dict[str, Any]:
    if text is None:
        raise InputError(f"{path}: not a predictor: a safetensors file without the metadata {_KEY!r}")
    try:
        about = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path}: not a predictor: its metadata {_KEY!r} is no JSON: {error}") from None
    if not isinstance(about, dict) or type(about.get("schema")) is not int or about["schema"] < 1:
        raise InputError(f"{path}: not a predictor: its metadata {_KEY!r} has no schema")
    if about["schema"] > SCHEMA:
        raise InputError(f"{path}: predictor schema {about['schema']}; this version reads {SCHEMA}: update seqmoe")
    for field, kind in _FIELDS.items():
        if not isinstance(about.get(field), kind):
            raise InputError(f"{path}: not a predictor: {field} = {about.get(field)!r} in its metadata")
    for field in ("layers", "experts", "top_k"):
        if type(about["geometry"].get(field)) is not int:
            raise InputError(f"{path}: not a predictor: its metadata lack geometry.{field}")
    layers, experts, top_k = (about["geometry"][field] for field in ("layers", "experts", "top_k"))
    if layers < 1 or not 0 < top_k <= experts:
        raise InputError(f"{path}: not a predictor: geometry = {about['geometry']} in its metadata")
    if not _covers(about["ranges"], layers):
        raise InputError(f"{path}: not a predictor: ranges = {about['ranges']} in its metadata, of {layers} layers")
    return about


def _covers(ranges: list[Any], layers: int) -> bool:
    """Whether they are pairs of layers, ascending and without gaps, from the first layer to the last."""
    end = 0
    for pair in ranges:
        if not isinstance(pair, list) or [type(layer) for layer in pair] != [int, int] or not end == pair[0] < pair[1]:
            return False
        end = pair[1]
    return end == layers
