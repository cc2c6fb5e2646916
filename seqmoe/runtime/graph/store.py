"""The folder where compiled steps are kept, so that a model shape is compiled once per machine."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch._inductor.cpu_vec_isa import pick_vec_isa


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of files whose names tell all that they depend on; several processes may fill it at once."""

    folder: Path

    @staticmethod
    def default() -> Store:
        """``$SEQMOE_CACHE/graph``, else ``seqmoe/graph`` in the user's cache folder."""
        home = os.environ.get("SEQMOE_CACHE")
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return Store((Path(home) if home else cache / "seqmoe") / "graph")

    def file(self, name: str, make: Callable[[Path], None]) -> Path:
        """The file ``name``; made by ``make(path)`` if it is not there yet, and never seen half-written."""
        path = self.folder / name
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder, prefix="making-") as scratch:
                made = Path(scratch) / name
                make(made)
                made.replace(path)
        return path


def source_digest(files: Sequence[Path], *more: str) -> str:
    """Twelve hex digits of what compiled code depends on: ``files``, ``more``, PyTorch, Transformers, this CPU."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    for text in (*more, torch.__version__, transformers.__version__, str(pick_vec_isa())):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:12]
