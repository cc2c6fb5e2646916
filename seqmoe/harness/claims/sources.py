"""Where the records behind a verdict are: this machine's, and those that come with the repository."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqmoe.harness.record import Record
from seqmoe.harness.store import read_records, store_files
from seqmoe.harness.studies.record import ANY, StudyRecord
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home


def read_evidence(home: Home, folders: Sequence[Path] | None = None) -> list[Record | StudyRecord]:
    """All records below ``folders``; by default results/ and, where it exists, results/published/.

    `InputError` for a folder that does not exist.
    """
    for folder in folders or ():
        if not folder.is_dir():
            raise InputError(f"--results {folder}: no such folder; give one that `seqmoe bench` has written to")
    chosen = list(folders or (home.results, home.paper.parent / "published"))
    return [record for folder in chosen for path in store_files(folder) for record in read_records(path, ANY)]
