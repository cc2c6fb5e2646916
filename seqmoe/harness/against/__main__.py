"""``python -m seqmoe.harness.against``: what ``nox -s bench`` runs, after its environment is made.

``--against REV`` times the clone as it is beside a revision and ends with 1 if a benchmark is slower by more than the
threshold; without it pytest-benchmark times and saves. Both add to the history of this machine. Wrong input ends in 2.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from seqmoe.harness.against.history import Point, append, history_path, points_of, read_report
from seqmoe.harness.against.runs import ROUNDS, Outcome, compare_sides
from seqmoe.harness.against.sides import Side, revision_side, working_side
from seqmoe.harness.fingerprint import fingerprint
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home, find_home

THRESHOLD = 0.10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns the exit code."""
    asked, rest = _parser().parse_known_args(arguments)
    home = find_home()
    try:
        if home.kind != "clone":
            raise InputError("benchmarks are of a clone; stand in one")
        if asked.against is None:
            return _save(home, [*rest, *_keywords(asked.only)])
        if rest:
            raise InputError(f"{' '.join(rest)}: unknown beside --against; valid: --only, --threshold, --rounds")
        return _compare(home, asked.against, asked.only, asked.threshold, asked.rounds)
    except InputError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nox -s bench --", description="Time the benchmarks, or two revisions.", allow_abbrev=False
    )
    parser.add_argument("--against", metavar="REV", help="a git revision to compare what is here with")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="part of a benchmark's name")
    parser.add_argument("--threshold", type=float, default=THRESHOLD, help="share that is allowed; default 0.10")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"turns of each side per pass; default {ROUNDS}")
    return parser


def _keywords(only: Sequence[str]) -> list[str]:
    return ["-k", " or ".join(only)] if only else []


def _save(home: Home, options: Sequence[str]) -> int:
    """Let pytest-benchmark time and save below results/<host>/.benchmarks, and add its medians to the history."""
    environment = fingerprint(home)
    host = str(environment["host"])
    storage = home.results / host / ".benchmarks"
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [sys.executable, "-m", "pytest", str(home.work / "benchmarks"), "--benchmark-autosave"]
        command += [f"--benchmark-storage=file://{storage}", f"--benchmark-json={report}", *options]
        status = subprocess.run(command, check=False).returncode
        if report.is_file() and report.stat().st_size:
            git = environment["git"]
            revision = f"{git.get('revision', '')}{'+' if git.get('dirty') else ''}"
            path = history_path(home.results, host)
            append(path, points_of(read_report(report), revision, host))
            print(f"saved in {storage}, history in {path}")
    return status


def _compare(home: Home, revision: str, only: Sequence[str], threshold: float, rounds: int) -> int:
    if not 0 < threshold < 10:
        raise InputError(f"--threshold {threshold}: must lie in (0, 10), for example {THRESHOLD}")
    if rounds < 8:
        raise InputError(f"--rounds {rounds}: at least 8, or no difference could be told from chance")
    builds, benchmarks = home.work / ".benchmarks" / "builds", home.work / "benchmarks"
    logs = home.work / ".benchmarks" / "logs"
    with (
        tempfile.TemporaryDirectory() as folder,
        revision_side(home.work, revision, Path(folder), builds, _say) as before,
    ):
        now = working_side(home.work, Path(folder), builds, _say)
        _say(f"{before.revision[:10]} and {now.revision[:10]}{'+' * now.revision.endswith('+')} in turns")
        outcomes = compare_sides(before, now, benchmarks, threshold, logs, only, rounds, _say)
    _remember(home, before, now, outcomes)
    return _report(outcomes, threshold)


def _report(outcomes: Sequence[Outcome], threshold: float) -> int:
    """Print the verdict, worst last; 1 if there is a regression."""
    timed = [one for one in outcomes if one.passes]
    for one in sorted(timed, key=lambda one: one.differences["cpu"][-1].ratio):
        told = "  ".join(f"{clock} x {found[-1].ratio:.3f}" for clock, found in one.differences.items())
        print(f"{'SLOWER' if one.slower else 'ok':7}{told}  {one.name}")
    for one in outcomes:
        if one.reason:
            print(f"{'left':7}{one.name}: {one.reason}")
    slower = [one.name for one in timed if one.slower]
    if not timed:
        print("no benchmark could be timed on both sides")
        return 1
    print(f"{len(timed)} benchmarks, {len(slower)} slower by more than {threshold:.0%}")
    return 1 if slower else 0


def _remember(home: Home, before: Side, now: Side, outcomes: Sequence[Outcome]) -> None:
    host, when = str(fingerprint(home)["host"]), datetime.now(UTC).isoformat(timespec="seconds")
    points = [
        Point(side.revision, when, one.name, statistics.median(times["wall"]), host)
        for one in outcomes
        if one.passes
        for side, times in ((before, one.passes[-1].a), (now, one.passes[-1].b))
    ]
    append(history_path(home.results, host), points)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
