"""What a checkpoint's safetensors files hold: name, type, shape and place of every tensor, read from the headers alone.

The format: eight bytes with the header's length, the header in JSON, then the tensors' bytes
(https://github.com/huggingface/safetensors).
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path

import torch

from seqmoe.spec.errors import InputError

# The types that weights are loaded from; a pool holds the first two.
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file: its bytes start at ``offset`` from the file's beginning. ``dtype`` as safetensors says."""

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor of a checkpoint folder by name, its shards included.

    Raises `InputError`, naming file and tensor, for a shard that is missing, a file that ends too early, and an index
    that promises a tensor that its shard does not hold.
    """
    if (folder / _SINGLE).is_file():
        return _header(folder / _SINGLE)
    if not (folder / _INDEX).is_file():
        raise InputError(f"{folder}: has neither {_SINGLE} nor {_INDEX}; weights are read from safetensors only")
    shard_of: dict[str, str] = json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"]
    tensors: dict[str, StoredTensor] = {}
    for shard in sorted(set(shard_of.values())):
        if not (folder / shard).is_file():
            first = min(name for name, holder in shard_of.items() if holder == shard)
            raise InputError(f"{folder / shard}: is missing; {_INDEX} says that it holds {first!r} and others")
        tensors |= _header(folder / shard)
    for name, shard in shard_of.items():
        if name not in tensors:
            raise InputError(f"{folder / shard}: has no tensor {name!r}, though {_INDEX} says so; download it again")
    return tensors


def _header(file: Path) -> dict[str, StoredTensor]:
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if 8 + length > size:
            raise InputError(
                f"{file}: {size} bytes are too few for its header; it is truncated, or no safetensors file"
            )
        try:
            entries = json.loads(stream.read(length))
        except ValueError:
            raise InputError(f"{file}: its header is no JSON; it is damaged, or no safetensors file") from None
    entries.pop("__metadata__", None)
    tensors = {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"][0]):
        begin, end = entry["data_offsets"]
        if 8 + length + end > size:
            raise InputError(
                f"{file}: ends at byte {size}, inside tensor {name!r}, which needs {8 + length + end}; "
                "the file is truncated, download it again"
            )
        shape = tuple(entry["shape"])
        if entry["dtype"] in DTYPES and math.prod(shape) * DTYPES[entry["dtype"]].itemsize != end - begin:
            raise InputError(f"{file}: tensor {name!r} of shape {shape} has {end - begin} bytes; the file is damaged")
        tensors[name] = StoredTensor(file, name, entry["dtype"], shape, 8 + length + begin, end - begin)
    return tensors
