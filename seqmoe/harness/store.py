"""The store of records: one append-only file of JSON lines per host and suite, kept whole through crashes."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

from seqmoe.harness.failures import OBSTACLES
from seqmoe.harness.record import Record, from_json, to_json
from seqmoe.spec.errors import InputError

R = TypeVar("R")
_log = logging.getLogger(__name__)
_TORN = ".torn-"
# How every record of every kind begins.
_START = b'{"schema":'
# A reader holds the lock only while it looks at the last line; a writer waits this long for it.
_READERS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Codec(Generic[R]):
    """One kind of record: how it becomes a line, and how a line becomes it again.

    ``read`` is given the line and where it is, for its errors.
    """

    write: Callable[[R], str]
    read: Callable[[str, str], R]


RECORDS = Codec(to_json, from_json)


def store_path(results: Path, host: str, suite: str) -> Path:
    """Where the records of one suite on one host are: ``results/<host>/<suite>.jsonl``."""
    return results / host / f"{suite}.jsonl"


def store_files(results: Path) -> list[Path]:
    """Every store below ``results``, without what was set aside and without the paper's tables."""
    return sorted(path for path in results.glob("*/*.jsonl") if _TORN not in path.name)


@overload
def read_records(path: Path) -> list[Record]: ...
@overload
def read_records(path: Path, codec: Codec[R]) -> list[R]: ...
def read_records(path: Path, codec: Codec[Any] = RECORDS) -> list[Any]:
    """All records of a store in the order of writing; a file that does not exist holds none.

    A torn last line is set aside with a warning unless a sweep is writing to the file at this moment. Any other line
    that is not a record is an `InputError` with file and line number, and so is anything but a regular file. A file
    that does not begin as stores do is left as it is.
    """
    _require_regular(path)
    try:
        with path.open("rb+") as stream:
            if _lock(stream.fileno()):
                _set_torn_line_aside(path, stream.fileno())
                fcntl.flock(stream.fileno(), fcntl.LOCK_UN)
            return _parse(path, stream.read(), codec)
    except FileNotFoundError:
        return []
    except PermissionError:
        return _parse(path, path.read_bytes(), codec)


class Store(Generic[R]):
    """One store of one kind of record, open for writing. A context manager.

    A second writer of the same file is an `InputError`, and so is a path that names anything but a regular file.
    """

    @overload
    def __init__(self: Store[Record], path: Path) -> None: ...
    @overload
    def __init__(self, path: Path, codec: Codec[R]) -> None: ...
    def __init__(self, path: Path, codec: Codec[Any] = RECORDS) -> None:
        _require_regular(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._codec: Codec[R] = codec
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if not _lock(self._file, patience=_READERS_SECONDS):
                raise InputError(f"{path}: another sweep is writing to this file; wait until it ends, or stop it")
            _set_torn_line_aside(path, self._file)
            self._records: list[R] = _parse(path, path.read_bytes(), codec)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Store[R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    @property
    def records(self) -> tuple[R, ...]:
        """All records in the order of writing."""
        return tuple(self._records)

    def append(self, record: R) -> None:
        """Write one record; it is on the disk when this returns."""
        line = (self._codec.write(record) + "\n").encode()
        while line:
            line = line[os.write(self._file, line) :]
        os.fsync(self._file)
        self._records.append(record)


def latest(records: Iterable[Record]) -> list[Record]:
    """One record for every cell and repeat, the one written last, in the order of their first writing.

    An obstacle (``unsupported``, ``not_installed``) leaves alone what the cell has given on the same weights.
    """
    found: dict[tuple[str, int], Record] = {}
    results: dict[str, Record] = {}
    for record in records:
        if record.status.ok:
            results[record.cell_key] = record
        elif record.status.kind in OBSTACLES and _same_weights(record, results.get(record.cell_key)):
            continue
        found[record.cell_key, record.repeat] = record
    return list(found.values())


def _same_weights(obstacle: Record, result: Record | None) -> bool:
    """Whether the weights at hand were those of the result; weights that were not at hand are no other ones."""
    if result is None:
        return False
    now, then = (record.environment.get("weights", {}) for record in (obstacle, result))
    return all(digest is None or digest == then.get(kind) for kind, digest in now.items())


def _require_regular(path: Path) -> None:
    """A device or a pipe has no end; reading one would take all memory, or wait for ever."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is not a regular file, so it holds no records; move it away")


def _lock(file: int, patience: float = 0.0) -> bool:
    """Take the file for this process until it is closed; false if another one has it. The kernel frees it on death."""
    limit = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= limit:
                return False
            time.sleep(0.02)
        else:
            return True


def _set_torn_line_aside(path: Path, file: int) -> None:
    """Move a last line that a crash cut short to a file of its own; end a whole one that lacks only its newline."""
    data = path.read_bytes()
    start = data.rstrip(b"\n").rfind(b"\n") + 1
    line = data[start:]
    if not line.strip() or not _begins_as_store(data):
        return
    if _is_json(line):
        if not line.endswith(b"\n"):
            os.lseek(file, 0, os.SEEK_END)
            os.write(file, b"\n")
            os.lseek(file, 0, os.SEEK_SET)
        return
    number = next(n for n in range(1, 1_000_000) if not _aside(path, n).exists())
    _aside(path, number).write_bytes(line)
    os.ftruncate(file, start)
    os.fsync(file)
    _log.warning("%s: the last line was cut off; it was moved to %s", path, _aside(path, number))


def _begins_as_store(data: bytes) -> bool:
    """Whether the file is ours to repair: any other may be named by mistake. A crash can leave zeros only."""
    head = data[: len(_START)]
    return head == _START[: len(head)] or not data.strip(b"\0\n")


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}{_TORN}{number}.jsonl")


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _parse(path: Path, data: bytes, codec: Codec[R]) -> list[R]:
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    if lines and not data.endswith(b"\n") and not _is_json(lines[-1][1]) and _begins_as_store(data):
        _log.warning("%s:%d: the last line is not complete and was left out", path, lines.pop()[0])
    return [codec.read(line.decode("utf-8", "replace"), f"{path}:{number}") for number, line in lines]
