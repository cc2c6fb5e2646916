"""Foreign trace formats, one small reader each, chosen by what a file contains."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.importers import fingerprint_npz, route_trace


class Reader(Protocol):
    """What a format's module offers."""

    FORMAT: str

    def recognises(self, head: bytes) -> bool:
        """Whether a file that starts so is of this format."""
        ...

    def read(self, path: Path) -> TraceSet:
        """Read the whole file, or raise `InputError`."""
        ...


_READERS: tuple[Reader, ...] = (route_trace, fingerprint_npz)


def import_traces(path: Path) -> TraceSet:
    """Read a trace file of any known format.

    Raises `InputError` for a missing file, an unknown format, or contents that break a format's rules, with the line or
    index; nothing is ever half-imported.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such trace file")
    with path.open("rb") as stream:
        head = stream.read(256)
    for reader in _READERS:
        if reader.recognises(head):
            try:
                return reader.read(path)
            except InputError:
                raise
            except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
                reason = str(error).splitlines()[0]
                raise InputError(f"{path}: breaks the format {reader.FORMAT}: {reason}; is it truncated?") from None
    formats = "; ".join(reader.FORMAT for reader in _READERS)
    raise InputError(f"{path}: not a known trace format; known: {formats}")
