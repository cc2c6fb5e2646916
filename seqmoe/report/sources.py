"""The records that a report is made from, of one folder of results or of several that hold parts of each other.

And what can be said of a report that was asked for before they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqmoe.harness.record import Record
from seqmoe.harness.store import latest, read_records, store_files
from seqmoe.harness.studies.record import ANY
from seqmoe.report.environments import AnyRecord
from seqmoe.report.page import file_stem
from seqmoe.report.registry import FIGURES
from seqmoe.spec.errors import InputError, nearest


def read_results(folders: Sequence[Path]) -> list[AnyRecord]:
    """What counts of every store: of a system's cell and repeat the last record, of a study all.

    Stores of one host and suite in several folders are read as one, in the order of time, and what stands in two of
    them counts once. `InputError` for a file that is no store.
    """
    stores: dict[tuple[str, str], list[AnyRecord]] = {}
    for folder in folders:
        for path in store_files(folder):
            stores.setdefault((path.parent.name, path.stem), []).extend(read_records(path, ANY))
    records: list[AnyRecord] = []
    for store in stores.values():
        merged = _merged(store) if len(folders) > 1 else store
        records += latest(record for record in merged if isinstance(record, Record))
        records += [record for record in merged if not isinstance(record, Record)]
    return records


def require_folders(folders: Sequence[Path]) -> None:
    """`InputError` for a folder that is not there."""
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"--results {folder}: no such folder; give one that `seqmoe bench` has written to")


def require_room(out: Path) -> None:
    """`InputError` for a folder to write that cannot be one: it, or what it would lie in, is there as a file."""
    there = next(path for path in (out, *out.absolute().parents) if path.exists() or path.is_symlink())
    if not there.is_dir():
        raise InputError(f"--out {out}: {there} is there and is no folder; give another name")


def require_figures(png: Sequence[str]) -> None:
    """`InputError` for a name that is no figure's, before it is known which of them were run."""
    names = [file_stem(entry.figure) for entry in FIGURES]
    for name in png:
        if name not in names:
            raise InputError(f"--png {name}: no figure of a report; {nearest(name, names)}")


def _merged(store: Sequence[AnyRecord]) -> list[AnyRecord]:
    once: dict[tuple[Any, ...], AnyRecord] = {}
    for record in store:
        once.setdefault((record.cell_key, getattr(record, "repeat", 0), record.started), record)
    return sorted(once.values(), key=lambda record: record.started)
