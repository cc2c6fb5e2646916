"""Arrays of expert ids [tokens, layers, k], however they are written: nested lists, base64, ``.npy``, ``.npz``."""

from __future__ import annotations

import base64
import binascii
import io
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.errors import InputError
from seqmoe.traces import validate

HEAD = 512
_LARGEST = int(np.iinfo(np.int16).max)


def is_array(head: bytes) -> bool:
    """Whether a file that starts so is a numpy array, or an archive of them."""
    return head.startswith(b"\x93NUMPY") or (head.startswith(b"PK\x03\x04") and b".npy" in head[:HEAD])


def arrays_of(path: Path) -> list[tuple[str, NDArray[np.int16]]]:
    """The arrays of a ``.npy`` (one, without a name) or ``.npz`` (by name, numbers within names in their order)."""
    try:
        stored = np.load(path)
        if isinstance(stored, np.ndarray):
            return [("", checked(stored, str(path)))]
        with stored:
            names = sorted(
                stored.files, key=lambda name: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", name)]
            )
            return [(name, checked(stored[name], f"{path}: array {name!r}")) for name in names]
    except InputError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a complete array of expert ids: {error}; is it truncated?") from None


def decoded(value: Any, where: str) -> NDArray[np.int16]:
    """An array from JSON: nested lists, or a base64 string of a ``.npy`` file."""
    if isinstance(value, str):
        try:
            return checked(np.load(io.BytesIO(base64.b64decode(value, validate=True))), where)
        except (binascii.Error, EOFError) as error:
            raise InputError(f"{where}: not base64 of a .npy file: {error}; is it truncated?") from None
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{where}: not base64 of a .npy file: {error}; is it truncated?") from None
    if not isinstance(value, list):
        raise InputError(f"{where}: expected nested lists or a base64 string, got {str(value)[:80]!r}")
    return checked(np.array(_nested(value, where), dtype=np.int64), where)


def checked(array: NDArray[Any], where: str) -> NDArray[np.int16]:
    """The array as int16, or `InputError` if it is no [tokens, layers, k] of ids (-1 where none was recorded)."""
    if array.ndim != 3 or not array.size or array.dtype.kind not in "iu":
        raise InputError(f"{where}: {array.dtype} {list(array.shape)}: expected whole numbers [tokens, layers, k]")
    wrong = (array < -1) | (array > _LARGEST)
    if wrong.any():
        token, layer, rank = np.argwhere(wrong)[0]
        raise InputError(f"{where}: token {token}, layer {layer}: expert {array[token, layer, rank]} is out of range")
    return array.astype(np.int16)


def _nested(tokens: list[Any], where: str) -> list[list[list[int]]]:
    """The lists themselves once every token has as many layers, and every layer as many ids."""
    layers = top_k = 0
    for number, token in enumerate(tokens):
        if not isinstance(token, list) or not token or (layers and len(token) != layers):
            raise InputError(f"{where}: token {number}: expected a list of {layers or 'its'} layers; is it truncated?")
        layers = len(token)
        for layer, ids in enumerate(token):
            if isinstance(ids, list) and (not top_k or len(ids) == top_k) and all(i == -1 for i in ids) and ids:
                top_k = len(ids)
                continue
            chosen = validate.expert_ids(ids, f"{where}: token {number}, layer {layer}")
            if top_k and len(chosen) != top_k:
                raise InputError(f"{where}: token {number}, layer {layer}: {len(chosen)} experts, but {top_k} before")
            top_k = len(chosen)
    return tokens
