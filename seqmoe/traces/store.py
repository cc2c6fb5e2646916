"""The store of traces: sharded Arrow by way of `datasets`, memory-mapped, read request by request.

A folder of ``trace_set.json`` (`seqmoe.traces.manifest`) and ``shard-00000.arrow``, ... of whole requests. A set larger
than memory can be opened, selected from, split and streamed: a request's pages are read when it is asked for.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import numpy as np

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import RequestTrace, TraceSet
from seqmoe.traces.manifest import MANIFEST, Manifest, Shard, read_manifest
from seqmoe.traces.rows import BRIEF, COLUMNS, request_of
from seqmoe.traces.split import Part
from seqmoe.traces.summary import set_digest
from seqmoe.traces.writer import StoreWriter

__all__ = ["MANIFEST", "StoreWriter", "StoredRequests", "open_store", "write_store"]

# Every memory map holds a file open, and 1,024 open files are a common limit.
_OPEN_SHARDS = 256


class StoredRequests(Sequence[RequestTrace]):
    """The requests of a store. Nothing of their routing is read before they are asked for; safe to pickle."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._tables: dict[int, Any] = {}
        self._ends = np.cumsum([shard.requests for shard in manifest.shards], dtype=np.int64)
        self._checked = manifest.trace_set()

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @overload
    def __getitem__(self, index: int) -> RequestTrace: ...
    @overload
    def __getitem__(self, index: slice) -> Part: ...
    def __getitem__(self, index: int | slice) -> RequestTrace | Part:
        if isinstance(index, slice):
            return Part(self, np.arange(len(self), dtype=np.int64)[index])
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"request {index} of {len(self)}")
        shard = int(np.searchsorted(self._ends, place, side="right"))
        row = place - int(self._ends[shard] - self.manifest.shards[shard].requests)
        where = f"{self.folder / self.manifest.shards[shard].file}: request {row}"
        try:
            request = request_of(self._table(shard).fast_slice(row, 1), self.manifest.layers, self.manifest.top_k)
            self._checked.check(request, where)
        except InputError:
            raise
        except (ValueError, OSError, KeyError, TypeError, AttributeError) as error:
            reason = str(error).removeprefix(f"{where}: ")
            raise InputError(f"{where}: {reason}; is the file damaged?") from None
        return request

    def column(self, name: str) -> list[Any]:
        """See `seqmoe.traces.summary.Columns`; reads this column's pages only.

        Who reads all digests learns whether the manifest still fits them: `InputError` where it was edited.
        """
        if name not in BRIEF:
            raise KeyError(name)
        values = [value for shard in range(len(self._ends)) for value in self._table(shard).column(name).to_pylist()]
        about = self.manifest
        if name == "digest" and about.complete and set_digest(about.geometry, values) != about.digest:
            raise InputError(
                f"{self.folder / MANIFEST}: does not fit the requests beside it, whose digest is another one; "
                "was it edited? copy or import the store again"
            )
        return values

    def _table(self, shard: int) -> Any:
        """The memory-mapped table of a shard; of many, the one opened first is closed again."""
        if shard not in self._tables:
            while len(self._tables) >= _OPEN_SHARDS:
                del self._tables[next(iter(self._tables))]
            self._tables[shard] = open_shard(self.folder, self.manifest.shards[shard])
        return self._tables[shard]

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "manifest": self.manifest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["folder"], state["manifest"])  # type: ignore[misc]


def open_shard(folder: Path, shard: Shard) -> Any:
    """A shard's memory-mapped table (of `datasets`). One that is absent, damaged or cut short is an `InputError`."""
    from datasets import Dataset

    path = folder / shard.file
    if not path.is_file():
        raise InputError(f"{path}: missing, though {MANIFEST} names it; copy or import the store again")
    try:
        table = Dataset.from_file(str(path)).data
        table.validate(full=True)  # lists that leave the file would end the process; their values are not read
    except Exception as error:  # damaged bytes make the reader stumble in ways of every kind
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"{path}: not a readable Arrow file: {reason}; is it truncated?") from None
    if not set(COLUMNS) <= set(table.column_names):
        lacking = ", ".join(sorted(set(COLUMNS) - set(table.column_names)))
        raise InputError(f"{path}: lacks {lacking}, which a shard of a store has; is it damaged?")
    if table.num_rows != shard.requests:
        raise InputError(f"{path}: {table.num_rows} requests, but {MANIFEST} says {shard.requests}; is it truncated?")
    return table


def open_store(folder: Path) -> TraceSet:
    """Open a finished store; only its manifest is read, and the shards' presence checked. Raises `InputError`."""
    manifest = read_manifest(folder)
    if not manifest.complete:
        done = sum(shard.requests for shard in manifest.shards)
        raise InputError(
            f"{folder}: unfinished, {done} requests so far; run the command that was writing it again, it resumes"
        )
    for shard in manifest.shards:
        if not (folder / shard.file).is_file():
            raise InputError(f"{folder / shard.file}: missing, though {MANIFEST} names it; copy the store again")
    return replace(manifest.trace_set(), requests=StoredRequests(folder, manifest))


def write_store(traces: TraceSet, folder: Path, *, shard_requests: int = 256, half: bool = False) -> None:
    """Write a whole set, request by request, into a new folder, which appears only when it is complete.

    ``half`` keeps weights and logits in half precision: 3 bytes for each expert of each layer and token instead of 5.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: already exists; give a new folder")
    folder = folder.resolve()
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        writer = StoreWriter(partial, traces, shard_requests=shard_requests, half=half, resume=False, name=folder)
        with writer:
            for request in traces.requests:
                writer.append(request)
        os.replace(partial, folder)  # an empty folder is replaced too
    finally:
        shutil.rmtree(partial, ignore_errors=True)
