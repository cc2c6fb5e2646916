"""Cells that gave no result: which of them the next sweep tries again by itself, and how a person has one tried."""

from __future__ import annotations

import re
import shlex
import signal
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from seqmoe.harness.record import Record, Status
from seqmoe.harness.selection import Chosen
from seqmoe.spec.suite import Cell

# That a cell cannot be started says nothing of what it gave when it could.
OBSTACLES = ("unsupported", "not_installed")
# What people, schedulers and the kernel send; a SIGSEGV or SIGABRT is the process's own fault.
_FROM_OUTSIDE = {
    number.name for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
}


# How the reason begins where the machine that a cell ran on has gone.
NODE_LOST = "the node was lost"


def killed_from_outside(status: Status) -> bool:
    """Whether the worker ended by a signal that it did not cause itself, or with its whole machine."""
    if status.kind == "crash" and status.reason.startswith(NODE_LOST):
        return True
    found = re.search(r"\bkilled by (SIG[A-Z]+)", status.reason.partition("; it said")[0])
    return status.kind in ("crash", "oom") and found is not None and found[1] in _FROM_OUTSIDE


def deserves_another_try(past: Sequence[Record]) -> bool:
    """Whether the last record of a cell is the first that was killed from outside since its last result."""
    killed = 0
    for record in reversed(past):
        if record.status.ok:
            break
        killed += killed_from_outside(record.status)
    return bool(past) and killed == 1 and killed_from_outside(past[-1].status)


def failed_cells(cells: Iterable[Cell], records: Iterable[Record]) -> tuple[Cell, ...]:
    """The cells whose last record is a failure, in their order; what cannot be started here has not failed."""
    last = {record.cell_key: record.status for record in records}
    return tuple(
        cell for cell in cells if cell.key in last and not last[cell.key].ok and last[cell.key].kind not in OBSTACLES
    )


def obstacle_lines(statuses: Iterable[Status], most: int = 3) -> list[str]:
    """Why cells could not start here, the most frequent reasons first."""
    reasons = Counter(str(status) for status in statuses if status.kind in OBSTACLES)
    lines = [f"{count} not run: {reason}" for reason, count in reasons.most_common(most)]
    rest = sum(reasons.values()) - sum(count for _, count in reasons.most_common(most))
    return lines + ([f"{rest} more not run, for {len(reasons) - most} other reasons"] if rest else [])


def failure_line(
    failed: Sequence[Chosen], tried: Collection[str], suite: object, profile: str, options: Sequence[str] = ()
) -> str:
    """One sentence on ``failed`` and how to try one again, empty where nothing failed.

    ``tried`` are the keys of the cells that this sweep has run; the rest failed earlier.
    """
    if not failed:
        return ""
    earlier = sum(cell.key not in tried for cell in failed)
    count = f"{len(failed)} cell{'' if len(failed) == 1 else 's'} failed"
    when = "" if earlier == 0 else " earlier" if earlier == len(failed) else f", {earlier} of them earlier"
    size = () if profile == "quick" else ("--profile", profile)
    command = shlex.join(["seqmoe", "bench", str(suite), *size, *options, "--no-resume", "--only", failed[0].key])
    return f"{count}{when}: `{command}` tries one again"
