"""What a collection keeps until it is finished: generated tokens, and the stores of further processes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.manifest import MANIFEST, read_manifest
from seqmoe.traces.store import StoredRequests, StoreWriter


class Work:
    """Files beside the folder ``out``: ``<out>.collecting/tokens-<rank>.jsonl`` and ``.../rank-<rank>/`` (stores)."""

    def __init__(self, out: Path, rank: int = 0, ranks: int = 1) -> None:
        if not out.name:
            raise InputError(f"--out {out}: give the name of a folder of its own; files are kept beside it meanwhile")
        self.out, self.folder = out, out.with_name(f"{out.name}.collecting")
        self._tokens = self.folder / f"tokens-{rank}.jsonl"
        # One process writes where the result belongs; several write beside it, and the first gathers their stores.
        self.store = out if ranks == 1 else self.folder / f"rank-{rank}"

    def stores(self) -> list[Path]:
        """Every store that holds finished requests of this collection."""
        return [path.parent for path in (self.out / MANIFEST, *sorted(self.folder.glob(f"rank-*/{MANIFEST}")))
                if path.is_file()]  # fmt: skip

    def check(self, source: str) -> None:
        """Raise `InputError` if what is there was collected otherwise than ``source`` says."""
        for folder in self.stores():
            found = read_manifest(folder).source
            if found != source:
                raise InputError(f"{folder}: was collected otherwise ({found}), now: {source}; give another folder")

    def finished(self) -> set[str]:
        """Identifiers of all requests that are already traced."""
        return {identifier for folder in self.stores() for identifier in _requests(folder).column("identifier")}

    def complete(self) -> bool:
        """Whether the result is there and nothing is left to gather."""
        return (self.out / MANIFEST).is_file() and read_manifest(self.out).complete and not self.folder.exists()

    def read_tokens(self) -> dict[str, list[int]]:
        """Generated tokens of requests that an earlier call made; a line that a kill cut short is left out."""
        found: dict[str, list[int]] = {}
        for path in sorted(self.folder.glob("tokens-*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    found.update(json.loads(line))
                except json.JSONDecodeError:
                    continue
        return found

    def write_tokens(self, tokens: Mapping[str, Sequence[int]]) -> None:
        """Keep the tokens of one batch: on the disk when this returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._tokens.open("a", encoding="utf-8") as stream:
            stream.write("\n" * bool(stream.tell()) + json.dumps(tokens))
            stream.flush()
            os.fsync(stream.fileno())

    def gather(self, about: TraceSet, order: Iterable[str]) -> None:
        """Append the requests of all processes' stores to the result, in the given order, and remove the rest."""
        parts = [folder for folder in self.stores() if folder != self.out]
        if parts:
            found: dict[str, tuple[StoredRequests, int]] = {}
            for folder in parts:
                requests = _requests(folder)
                found |= {name: (requests, index) for index, name in enumerate(requests.column("identifier"))}
            with StoreWriter(self.out, about) as writer:
                for identifier in order:
                    if identifier in found and identifier not in writer.written:
                        requests, index = found[identifier]
                        writer.append(requests[index])
        shutil.rmtree(self.folder, ignore_errors=True)


def _requests(folder: Path) -> StoredRequests:
    return StoredRequests(folder, read_manifest(folder))
