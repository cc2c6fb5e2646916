"""How much memory this process can still take: of the machine, and of every control group it is in (Linux)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Control groups of version 1 say "no limit" with the largest multiple of a page; no machine has as much.
_UNLIMITED = 2**62
# Limit and usage by version.
_FILES = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}


@dataclass(frozen=True, slots=True)
class Available:
    """Bytes that can still be taken, and the file that says so."""

    bytes: int
    source: str


def available_memory(proc: Path = Path("/proc")) -> Available:
    """The least of what the machine and the memory limits of this process's control groups leave.

    File cache counts as free, as the kernel gives it up. Reads ``meminfo`` and ``self/cgroup`` of ``proc``; on a system
    without them, no limit is known.
    """
    found = [Available(_UNLIMITED, "no limit known")]
    if (proc / "meminfo").is_file():
        found.append(Available(_numbers(proc / "meminfo")["MemAvailable:"] * 1024, f"{proc}/meminfo"))
    for folder, version in _groups(proc):
        found += _left(folder, version)
    return min(found, key=lambda one: one.bytes)


def _groups(proc: Path) -> Iterator[tuple[Path, int]]:
    """The folders of this process's memory control groups, each with its parents up to the mount, and the version."""
    if not (proc / "self/cgroup").is_file():
        return
    own = {}
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            own[2] = path
        elif "memory" in controllers.split(","):
            own[1] = path
    for line in (proc / "self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ", 1)
        kind, _, options = after.split(" ", 2)
        version = 2 if kind == "cgroup2" else 1 if kind == "cgroup" and "memory" in options.split(",") else 0
        if version not in own:
            continue
        root, mount = before.split(" ")[3:5]
        # Inside a container the mount shows only the part of the tree below its root.
        relative = own[version].removeprefix(root) if root != "/" else own[version]
        folder = Path(mount) / relative.lstrip("/")
        while folder != Path(mount).parent:
            yield folder, version
            folder = folder.parent


def _left(folder: Path, version: int) -> list[Available]:
    limit, usage = _FILES[version]
    if not (folder / limit).is_file() or not (folder / usage).is_file():
        return []
    value = (folder / limit).read_text().strip()
    if value == "max" or int(value) >= _UNLIMITED:
        return []
    used = int((folder / usage).read_text())
    statistics = _numbers(folder / "memory.stat")
    prefix = "" if version == 2 else "total_"
    cache = sum(statistics.get(f"{prefix}{name}_file", 0) for name in ("inactive", "active"))
    return [Available(max(int(value) - used + cache, 0), str(folder / limit))]


def _numbers(file: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    rows = (line.split() for line in file.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
