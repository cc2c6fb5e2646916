"""The text that the reference model is trained on: only what a machine has, or installs by package name."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seqmoe.reference import arithmetic

_DOCUMENT_CHARACTERS = 40_000
_ARITHMETIC_CHARACTERS = 4_000_000
_NOT_PROSE_OR_CODE = {"site-packages", "test", "tests", "idle_test", "__pycache__"}


@dataclass(frozen=True, slots=True)
class Source:
    """One text source: its documents, its licence, and the package that brings it where it is absent."""

    name: str
    licence: str
    package: str
    documents: tuple[str, ...]

    @property
    def characters(self) -> int:
        """Characters over all documents."""
        return sum(map(len, self.documents))


def sources(seed: int) -> list[Source]:
    """All sources that this machine has; one that is missing has no documents."""
    return [
        Source("python-standard-library", "PSF-2.0", "python3", tuple(_standard_library())),
        Source("king-james-bible", "public domain", "bible-kjv-text", tuple(_bible())),
        Source("jargon-file", "public domain", "jargon-text", tuple(_jargon())),
        Source("worked-arithmetic", "Apache-2.0", "", tuple(arithmetic.documents(_ARITHMETIC_CHARACTERS, seed))),
    ]


def is_held_out(document: str, share: float) -> bool:
    """Whether a document belongs to the held-out set: by content hash, so that the split never moves."""
    digest = hashlib.sha256(document.encode()).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


def _split(text: str) -> Iterator[str]:
    """Cut a long text at line ends into documents of about ``_DOCUMENT_CHARACTERS``."""
    piece: list[str] = []
    size = 0
    for line in text.splitlines(keepends=True):
        piece.append(line)
        size += len(line)
        if size >= _DOCUMENT_CHARACTERS:
            yield "".join(piece)
            piece, size = [], 0
    if piece:
        yield "".join(piece)


def _standard_library() -> Iterator[str]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if _NOT_PROSE_OR_CODE.isdisjoint(path.relative_to(root).parts):
            yield from _split(path.read_text(encoding="utf-8", errors="replace"))


def _bible() -> Iterator[str]:
    command = shutil.which("bible")
    if command is None:
        return
    text = subprocess.run(
        [command, "gen1:1-rev22:21"], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    ).stdout
    yield from _split(text)


def _jargon() -> Iterator[str]:
    path = Path("/usr/share/doc/jargon-text/jargon.txt.gz")
    if path.exists():
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as stream:
            yield from _split(stream.read())
