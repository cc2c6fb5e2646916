"""The header of a GGUF file: what is needed to place experts, read with the standard library alone."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from baselines._shared.protocol import Refusal

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_EXPERTS = re.compile(r"blk\.(\d+)\.ffn_(?:gate|up|down|gate_up)_(?:ch|)exps\.weight")


@dataclass(frozen=True)
class Header:
    """``layers`` counts all blocks; ``expert_bytes`` maps each block that has experts to the bytes of all of them."""

    architecture: str
    layers: int
    experts: int
    context: int
    expert_bytes: dict[int, int]

    @property
    def total_expert_bytes(self) -> int:
        """Bytes of all experts of all layers, as stored."""
        return sum(self.expert_bytes.values())


def read_header(path: Path) -> Header:
    """Read the header; a file that is not one whole GGUF is refused as invalid."""
    try:
        with path.open("rb") as stream:
            if stream.read(4) != b"GGUF":
                raise Refusal("invalid", f"{path}: not a GGUF file")
            _, tensors, pairs = struct.unpack("<IQQ", stream.read(20))
            values = {_string(stream): _value(stream) for _ in range(pairs)}
            offsets = {name: offset for name, offset in (_tensor(stream) for _ in range(tensors))}
            alignment = int(values.get("general.alignment", 32))
            data = -(-stream.tell() // alignment) * alignment
    except FileNotFoundError:
        raise Refusal("invalid", f"{path}: no such file") from None
    except (struct.error, KeyError, UnicodeDecodeError) as error:
        raise Refusal("invalid", f"{path}: damaged GGUF header: {error!r}") from None
    if values.get("split.count", 1) > 1:
        raise Refusal("invalid", f"{path}: one part of a split GGUF", "merge it with llama-gguf-split --merge")
    architecture = values["general.architecture"]
    return Header(
        architecture=architecture,
        layers=values[f"{architecture}.block_count"],
        experts=values.get(f"{architecture}.expert_count", 0),
        context=values[f"{architecture}.context_length"],
        expert_bytes=_expert_bytes(offsets, path.stat().st_size - data),
    )


def _expert_bytes(offsets: dict[str, int], data_bytes: int) -> dict[int, int]:
    ordered = sorted(offsets.items(), key=lambda item: item[1])
    ends = [offset for _, offset in ordered[1:]] + [data_bytes]
    found: dict[int, int] = {}
    for (name, offset), end in zip(ordered, ends, strict=True):
        if match := _EXPERTS.fullmatch(name):
            layer = int(match.group(1))
            found[layer] = found.get(layer, 0) + end - offset
    return found


def _value(stream: BinaryIO, kind: int | None = None) -> Any:
    if kind is None:
        kind = _number(stream, "I")
    if kind == _STRING:
        return _string(stream)
    if kind == _ARRAY:
        inner, count = _number(stream, "I"), _number(stream, "Q")
        return [_value(stream, inner) for _ in range(count)]
    return _number(stream, _SCALARS[kind])


def _tensor(stream: BinaryIO) -> tuple[str, int]:
    name = _string(stream)
    dimensions = _number(stream, "I")
    stream.read(8 * dimensions + 4)
    return name, _number(stream, "Q")


def _number(stream: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", stream.read(struct.calcsize(f"<{code}")))[0]


def _string(stream: BinaryIO) -> str:
    return stream.read(_number(stream, "Q")).decode("utf-8")
