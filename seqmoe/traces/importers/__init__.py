"""Foreign trace formats, one small reader each, chosen by what a file contains."""

from __future__ import annotations

import tokenize
import zlib
from pathlib import Path
from typing import Protocol

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.importers import fingerprint_json, fingerprint_npz, layer_records, route_trace, routed_experts


class Reader(Protocol):
    """What a format's module offers."""

    FORMAT: str

    def recognises(self, head: bytes, path: Path) -> bool:
        """Whether the file, which starts so, is of this format; its content decides, never its name."""
        ...

    def read(self, path: Path) -> TraceSet:
        """Read the whole file, or raise `InputError`."""
        ...


_READERS: tuple[Reader, ...] = (route_trace, fingerprint_npz, fingerprint_json, layer_records, routed_experts)
# What `json`, `zipfile` and `numpy` raise for bytes that are damaged beyond what the readers look for.
_BROKEN = (
    ValueError, LookupError, TypeError, AttributeError, OverflowError, RuntimeError, EOFError, MemoryError, zlib.error,
    tokenize.TokenError,
)  # fmt: skip
# The first record of a line-wise format lies within this.
_HEAD = 1 << 16


def import_traces(path: Path) -> TraceSet:
    """Read a trace file of any known format.

    Raises `InputError` for a missing file, an unknown format, or contents that break a format's rules, with the line or
    index; nothing is ever half-imported.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such trace file")
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    for reader in _READERS:
        try:
            if reader.recognises(head, path):
                return reader.read(path)
        except InputError:
            raise
        except _BROKEN as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(f"{path}: breaks the format {reader.FORMAT}: {reason}; is it truncated?") from None
    formats = "; ".join(reader.FORMAT for reader in _READERS)
    raise InputError(f"{path}: not a known trace format; known: {formats}")
