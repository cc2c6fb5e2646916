"""JSON files as a series of documents: one whole document, a list of them, or one in every line."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqmoe.spec.errors import InputError


def looks_like_json(head: bytes) -> bool:
    """Whether a file that starts so may be JSON or JSON lines."""
    return head.lstrip()[:1] in (b"{", b"[")


def mentions(path: Path, word: bytes) -> bool:
    """Whether a file contains ``word`` anywhere; read through a memory map."""
    if not path.stat().st_size:
        return False
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(word) >= 0


def in_lines(path: Path) -> bool:
    """Whether the first line that is not empty is a whole JSON object, and something follows or it ends the file."""
    with path.open("rb") as stream:
        for line in stream:
            if line.strip():
                try:
                    return isinstance(json.loads(line), dict)
                except ValueError:
                    return False
    return False


def documents(path: Path) -> Iterator[tuple[str, Any]]:
    """Each document with its place (``line 3``, ``record 2``, or nothing for the only one).

    Raises `InputError` with the line for what is no JSON, and for a truncated file.
    """
    if in_lines(path):
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield f"line {number}", _parsed(line, f"{path}: line {number}")
        return
    whole = _parsed(path.read_bytes(), str(path))
    if isinstance(whole, list):
        yield from ((f"record {index}", value) for index, value in enumerate(whole))
    else:
        yield "", whole


def _parsed(text: bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not valid JSON: {error}; is the file truncated?") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not a text file: {error}") from None
