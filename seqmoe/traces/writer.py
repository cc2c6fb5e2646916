"""Writes a store of traces shard by shard; a writer that was killed goes on where its last whole shard ends."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import RequestTrace, TraceSet
from seqmoe.traces.manifest import MANIFEST, Manifest, Shard, read_manifest, write_manifest
from seqmoe.traces.rows import features, row_of
from seqmoe.traces.summary import set_digest

# Rows of one Arrow batch: its lists' offsets are 32-bit, and 16 requests of 8,192 tokens in 48 layers fit easily.
_BATCH = 16


class StoreWriter:
    """A context manager that appends requests to a store's folder.

    ``traces`` gives model, geometry, router, source and licence; its requests are not looked at. Entering a folder that
    an earlier writer left continues it (`InputError` if it is of another geometry or newer schema, or, with
    ``resume=False``, in any case): `written` holds the identifiers that are already there. A shard counts once its file
    has its final name and the manifest names it; `append` more than ``shard_requests`` starts the next. Leaving by an
    exception keeps the requests so far, but only a normal end marks the store complete. ``name`` is what messages call
    the folder, if it will have another one.
    """

    def __init__(
        self,
        folder: Path,
        traces: TraceSet,
        *,
        shard_requests: int = 256,
        half: bool = False,
        resume: bool = True,
        name: Path | None = None,
    ) -> None:
        if shard_requests < 1:
            raise InputError(f"shard_requests = {shard_requests}: expected at least 1")
        self.folder, self.written = folder, set[str]()
        self._name = name or folder
        self._traces, self._shard_requests, self._resume = traces, shard_requests, resume
        self._manifest = Manifest.of(traces, half)
        self._digests: list[str] = []
        self._open: Any = None
        self._requests = self._steps = 0

    def __enter__(self) -> StoreWriter:
        if (self.folder / MANIFEST).exists():
            self._continue()
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.glob("*"))):
            raise InputError(f"{self.folder}: is neither empty nor a store of traces; give another folder")
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_manifest(self.folder, self._manifest)
        return self

    def append(self, request: RequestTrace) -> None:
        """Add one request; one whose identifier is already there is an `InputError`, as is a foreign geometry."""
        where = f"{self._name}: request {len(self._digests)} {request.identifier!r}".rstrip()
        if request.identifier and request.identifier in self.written:
            raise InputError(f"{where}: an earlier request has the same identifier; they must differ, or be empty")
        try:
            self._traces.check(request, where)
        except ValueError as error:
            raise InputError(str(error)) from None
        row = row_of(request, self._manifest.experts, self._manifest.half)
        self._arrow().write(row)
        self._digests.append(row["digest"])
        self._requests += 1
        self._steps += row["steps"]
        if request.identifier:
            self.written.add(request.identifier)
        if self._requests >= self._shard_requests:
            self.flush()

    def flush(self) -> None:
        """End the present shard, so that its requests survive whatever comes."""
        if self._open is None:
            return
        self._open.finalize()
        self._open = None
        name = self._shard_name()
        os.replace(self._partial(), self.folder / name)
        shards = (*self._manifest.shards, Shard(name, self._requests, self._steps))
        self._manifest = replace(self._manifest, shards=shards, complete=False, digest="")
        write_manifest(self.folder, self._manifest)
        self._requests = self._steps = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()
        if kind is None:
            digest = set_digest(self._manifest.geometry, self._digests)
            self._manifest = replace(self._manifest, complete=True, digest=digest)
            write_manifest(self.folder, self._manifest)

    def _continue(self) -> None:
        from seqmoe.traces.store import StoredRequests

        found = read_manifest(self.folder)
        difference = found.differs(self._manifest)
        if not self._resume:
            raise InputError(f"{self.folder}: already a store of traces; give a new folder")
        if difference:
            raise InputError(f"{self.folder}: holds other traces ({difference}); give another folder")
        self._manifest = found
        requests = StoredRequests(self.folder, found)
        self._digests = requests.column("digest")
        self.written = {name for name in requests.column("identifier") if name}
        # Beyond what the manifest names, a killed writer may have left a file that it had not finished.
        for left in (self._partial(), self.folder / self._shard_name()):
            left.unlink(missing_ok=True)

    def _arrow(self) -> Any:
        if self._open is None:
            from datasets.arrow_writer import ArrowWriter

            columns = features(self._manifest.experts, self._manifest.half)
            self._open = ArrowWriter(features=columns, path=str(self._partial()), writer_batch_size=_BATCH)
        return self._open

    def _shard_name(self) -> str:
        return f"shard-{len(self._manifest.shards):05d}.arrow"

    def _partial(self) -> Path:
        return self.folder / f"{self._shard_name()}.partial"
