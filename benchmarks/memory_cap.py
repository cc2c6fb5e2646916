"""A limit on the memory of processes and of the files they read, by a control group (Linux; needs to be root)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_VERSION1 = Path("/sys/fs/cgroup/memory")
_VERSION2 = Path("/sys/fs/cgroup")


class CannotCap(Exception):
    """This machine offers no way to limit memory; the reason."""


@contextmanager
def memory_cap(limit: int) -> Iterator[Path]:
    """A control group of ``limit`` bytes, page cache included; gone afterwards, when its processes must have ended."""
    group, name = _new_group()
    try:
        try:
            (group / name).write_text(str(limit))
            if int((group / name).read_text()) > limit:
                raise CannotCap(f"{group / name} does not keep the limit")
        except OSError as error:
            raise CannotCap(f"{group / name} cannot be written: {error}") from None
        yield group
    finally:
        with suppress(OSError):
            group.rmdir()


def inside(group: Path, command: Sequence[str]) -> list[str]:
    """The command, entering the group before it starts."""
    return ["/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]


def forget_cached(folder: Path) -> None:
    """Take the folder's files out of the page cache: pages that are there already count for nobody's limit."""
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def _new_group() -> tuple[Path, str]:
    """A new group, and the file of its limit; version 1's memory controller or version 2's."""
    for root, limit, offered in (
        (_VERSION1, "memory.limit_in_bytes", (_VERSION1 / "memory.limit_in_bytes").exists()),
        (_VERSION2, "memory.max", _offers_memory(_VERSION2 / "cgroup.subtree_control")),
    ):
        if offered:
            group = root / f"seqmoe-bench-{os.getpid()}"
            try:
                group.mkdir()
            except OSError as error:
                raise CannotCap(f"{group} cannot be made: {error}") from None
            return group, limit
    raise CannotCap("there is no memory controller of control groups here")


def _offers_memory(control: Path) -> bool:
    return control.exists() and "memory" in control.read_text().split()
