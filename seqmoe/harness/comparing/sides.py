"""The two sides of a comparison: what a person named, and the records that it stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqmoe.harness.claims.sources import read_evidence
from seqmoe.harness.fingerprint import resolve_revision
from seqmoe.harness.record import Record
from seqmoe.harness.store import latest, read_records, store_files
from seqmoe.harness.studies.record import ANY
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.paths import Home

FILES, HOST, SYSTEM, REVISION = KINDS = ("files", "host", "system", "revision")
# Shorter ones are words more often than revisions.
_HASH = re.compile(r"[0-9a-f]{4,40}")


@dataclass(frozen=True, slots=True)
class Side:
    """One side. ``name`` is what was given, ``kind`` one of `KINDS`, ``records`` the newest of each cell and repeat."""

    name: str
    kind: str
    records: tuple[Record, ...]

    @property
    def hosts(self) -> list[str]:
        """The machines that its records were made on, in order of appearance."""
        return list(dict.fromkeys(host_of(record) for record in self.records))


def host_of(record: Record) -> str:
    """The machine that a record was made on, as a folder's name."""
    return str(record.environment.get("host", ""))


def revision_of(record: Record) -> str:
    """The git revision that a record was made at, empty where it does not tell."""
    git = record.environment.get("git")
    return str(git.get("revision", "")) if isinstance(git, dict) else ""


def find_sides(home: Home, names: tuple[str, str], folders: Sequence[Path] | None = None) -> tuple[Side, Side]:
    """Resolve two names: a result folder or a JSONL file, else a host, a system or a revision that records name.

    Hosts, systems and revisions are looked up in ``folders``, by default results/ and results/published/. A name that
    is none of these is an `InputError`, and so is a system beside anything but a system: its cells are others.
    """
    store: list[Record] | None = None
    sides = []
    for name in names:
        records = _from_files(Path(name))
        if records is None:
            if store is None:
                store = [one for one in read_evidence(home, folders) if isinstance(one, Record)]
                store.sort(key=lambda record: record.started)
            sides.append(_from_store(home, name, store))
        else:
            sides.append(Side(name, FILES, _newest(records)))
    kinds = {side.kind for side in sides}
    if SYSTEM in kinds and len(kinds) > 1:
        what = " and ".join(f"{side.name!r} ({side.kind})" for side in sides)
        raise InputError(f"{what}: a system is compared with another system; give two of them, or two stores")
    return sides[0], sides[1]


def _from_files(path: Path) -> list[Record] | None:
    """The records of a file, a host's folder or a folder of hosts; None where the path holds none of these."""
    if path.is_file():
        files = [path]
    elif path.is_dir():
        files = [file for file in sorted(path.glob("*.jsonl")) if ".torn-" not in file.name] or store_files(path)
        if not files:
            return None
    elif path.suffix == ".jsonl" or len(path.parts) > 1:
        raise InputError(f"{path}: no such file or folder of records")
    else:
        return None
    found = [one for file in files for one in read_records(file, ANY) if isinstance(one, Record)]
    if not found:
        raise InputError(f"{path}: holds no records of systems; a study is computed, there is nothing to time")
    return found


def _from_store(home: Home, name: str, store: Sequence[Record]) -> Side:
    hosts = {host_of(record) for record in store}
    systems = {record.cell.system for record in store}
    if name in hosts:
        return Side(name, HOST, _newest(record for record in store if host_of(record) == name))
    if name in systems:
        return Side(name, SYSTEM, _newest(record for record in store if record.cell.system == name))
    recorded = {revision_of(record) for record in store} - {""}
    revisions = {full for full in recorded if _HASH.fullmatch(name) and full.startswith(name)}
    if not revisions:
        resolved = resolve_revision(home, name)
        if resolved is not None and resolved not in recorded:
            known = ", ".join(sorted(full[:10] for full in recorded)) or "none"
            raise InputError(f"{name}: no record was made at revision {resolved[:10]}; recorded: {known}")
        revisions = {resolved} if resolved is not None else set()
    if len(revisions) > 1:
        raise InputError(f"{name}: is the start of {len(revisions)} recorded revisions; give more digits")
    if not revisions:
        hint = nearest(name, hosts | systems | {full[:10] for full in recorded})
        raise InputError(f"{name}: no such folder or file, and no host, system or revision of any record; {hint}")
    (revision,) = revisions
    return Side(name, REVISION, _newest(record for record in store if revision_of(record) == revision))


def _newest(records: Iterable[Record]) -> tuple[Record, ...]:
    """The last record of every cell and repeat, host by host; copies of published records count once."""
    by_host: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.started):
        by_host.setdefault(host_of(record), []).append(record)
    return tuple(record for host in by_host.values() for record in latest(host))
