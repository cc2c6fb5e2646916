"""Files that appear whole or not at all, and the hash of what files hold."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from seqmoe.spec.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to beside ``path``, which takes its place if all went well and is removed if not.

    What is there and is no file (a device, a pipe, a folder) is not replaced: `InputError`.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is there and is no file, so it cannot be replaced; give another name")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def files_sha256(paths: Iterable[Path], prefix: str = "") -> str:
    """SHA-256 (hex) over ``prefix``, and the name and the content of every file in the given order."""
    digest = hashlib.sha256(prefix.encode())
    for path in paths:
        digest.update(path.name.encode())
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
