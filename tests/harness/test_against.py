"""`nox -s bench -- --against`: who is called slower, what is built and what is timed. No test here measures time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from seqmoe.harness.against import __main__ as command
from seqmoe.harness.against import runs, sides
from seqmoe.harness.against.history import COLUMNS, Point, append, history_path, points_of, read
from seqmoe.harness.against.judging import difference
from seqmoe.harness.against.runs import Outcome, Timed, chosen, compare_sides
from seqmoe.harness.against.sides import Side
from seqmoe.spec.errors import InputError


def noisy(level, rounds=24, seed=0, spread=0.05):
    """Least times of rounds: ``level`` and a one-sided disturbance."""
    return list(level * (1 + spread * np.random.default_rng(seed).exponential(size=rounds)))


def test_a_slow_down_of_20_percent_is_seen_through_noise():
    for seed in range(40):
        assert difference(noisy(1.0, seed=seed), noisy(1.2, seed=seed + 1000)).slower(0.1)


def test_equal_sides_are_not_slower():
    for seed in range(40):
        found = difference(noisy(1.0, seed=seed), noisy(1.0, seed=seed + 1000))
        assert not found.slower(0.1)


def test_one_disturbed_round_is_no_slow_down():
    disturbed = noisy(1.0, seed=1)
    disturbed[3] = 50.0
    found = difference(noisy(1.0), disturbed)
    assert not found.slower(0.1) and found.ratio < 1.1


def test_the_permutation_test_is_exact_where_all_orders_can_be_listed():
    # Of the 2^8 ways to exchange pairs that all say the same, one looks as slow.
    assert difference([1.0] * 8, [1.5] * 8).p_value == pytest.approx(1 / 256, abs=2e-3)
    assert difference([1.0] * 3, [1.5] * 3).p_value > 0.1


def test_rounds_must_pair_up():
    with pytest.raises(ValueError, match="one of each side"):
        difference([1.0, 2.0], [1.0])


BENCHMARKS = """
import pytest
from package import work

@pytest.mark.parametrize("size", [1, 2])
def test_ours(benchmark, size):
    assert benchmark(work, size) == size
    benchmark.extra_info["x"] = benchmark.stats.stats.median

def test_worn(benchmark):
    calls = []
    def work():
        calls.append(1)
        if len(calls) > 3:
            raise RuntimeError("worn out")
    benchmark(work)

@pytest.mark.peer
def test_theirs(benchmark):
    raise AssertionError("a peer is not run")

def test_new(benchmark):
    from package import newer
    benchmark(newer)
"""


@pytest.fixture
def two(tmp_path):
    """Two versions of a package: the second has a function more."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "test_it.py").write_text(BENCHMARKS)
    found = []
    for name, more in (("old", ""), ("new", "def newer():\n    return 0\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "package.py").write_text(f"def work(size):\n    return size\n{more}")
        found.append(Side(tmp_path / name, name))
    return (*found, tmp_path / "benchmarks")


def test_both_sides_run_their_own_package_in_lockstep_and_peers_not_at_all(two, tmp_path):
    old, new, benchmarks = two
    (benchmarks / "test_later.py").write_text(
        "from package import newer\ndef test_x(benchmark):\n    benchmark(newer)\n"
    )
    outcomes = {one.name: one for one in compare_sides(old, new, benchmarks, 5.0, tmp_path / "logs", rounds=8)}
    assert set(outcomes) == {
        "test_it.py::test_worn", "test_it.py::test_ours[1]", "test_it.py::test_ours[2]", "test_it.py::test_new",
        "test_later.py::test_x",
    }  # fmt: skip
    timed = outcomes["test_it.py::test_ours[1]"].passes[0]
    assert len(timed.a["cpu"]) == len(timed.b["wall"]) == 8
    assert min(timed.a["wall"]) > 0
    # What the old side lacks stops none of the others and is no regression, nor is what fails on the way.
    missing = outcomes["test_it.py::test_new"]
    assert not missing.slower and missing.reason.startswith("a: failed ImportError: cannot import name 'newer'")
    assert outcomes["test_later.py::test_x"].reason == "cannot be run at old"
    assert outcomes["test_it.py::test_worn"].reason == "a: failed RuntimeError: worn out"


def test_only_chooses_by_parts_of_names():
    names = ["test_it.py::test_ours[1]", "test_it.py::test_ours[2]", "test_it.py::test_new"]
    assert chosen(names, ["ours[2]", "new"]) == names[1:]
    assert chosen(names, []) == names
    with pytest.raises(InputError, match="no benchmark has that in its name; there are test_it"):
        chosen(names, ["nothing"])


def passes(monkeypatch, two, *slow_downs):
    """Outcomes where pass n of one benchmark has its n-th slow-down, and how many passes were run."""
    given = iter(slow_downs)

    def one_pass(*_):
        factor = next(given)
        yield Timed("it", *({clock: noisy(level) for clock in runs.CLOCKS} for level in (1.0, factor)))

    monkeypatch.setattr(runs, "_one_pass", one_pass)
    old, new, benchmarks = two
    (outcome,) = compare_sides(old, new, benchmarks, 0.1, benchmarks.parent / "logs")
    return outcome.slower, len(outcome.passes)


def test_a_suspect_must_be_slower_in_three_pairs_of_processes(monkeypatch, two):
    assert passes(monkeypatch, two, 1.3, 1.3, 1.3) == (True, 3)
    assert passes(monkeypatch, two, 1.3, 1.0) == (False, 2)
    assert passes(monkeypatch, two, 1.3, 1.3, 1.0) == (False, 3)
    assert passes(monkeypatch, two, 1.05) == (False, 1)


@pytest.fixture
def repository(tmp_path):
    """A repository of two commits with the package's folders, whose extension is a text file in the cache."""
    clone = tmp_path / "clone"

    def git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", "-C", str(clone), *identity, *arguments], check=True, capture_output=True)

    (clone / "seqmoe/core/native").mkdir(parents=True)
    (clone / "seqmoe/core/native/a.cpp").write_text("one")
    (clone / "pyproject.toml").write_text("[project]\n")
    (clone / "seqmoe/core/x.py").write_text("x = 1\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    (clone / "seqmoe/core/x.py").write_text("x = 2\n")
    git("commit", "-qam", "second")
    builds = tmp_path / "builds"
    kept = builds / sides.extension_key(clone)
    kept.mkdir(parents=True)
    (kept / "_native.so").write_text("built")
    return clone, builds


def test_a_revision_and_the_clone_as_it_is_lie_side_by_side(repository, tmp_path):
    clone, builds = repository
    (clone / "seqmoe/core/x.py").write_text("x = 3\n")
    (clone / "seqmoe/core/new.py").write_text("")
    with sides.revision_side(clone, "HEAD~1", tmp_path, builds, print) as old:
        new = sides.working_side(clone, tmp_path, builds, print)
        texts = [(side.site / "seqmoe/core/x.py").read_text() for side in (old, new)]
        assert texts == ["x = 1\n", "x = 3\n"]
        assert (new.site / "seqmoe/core/new.py").exists()
        assert {(side.site / "seqmoe/core/_native.so").read_text() for side in (old, new)} == {"built"}
        assert len(old.revision) == 40 and new.revision.endswith("+")
    assert not old.site.exists()
    listed = subprocess.run(["git", "-C", str(clone), "worktree", "list"], capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1


def test_only_what_the_extension_is_made_of_has_it_built_anew(repository):
    clone, _ = repository
    before = sides.extension_key(clone)
    (clone / "seqmoe/core/x.py").write_text("x = 4\n")
    assert sides.extension_key(clone) == before
    (clone / "seqmoe/core/native/a.cpp").write_text("two")
    assert sides.extension_key(clone) != before


def test_a_revision_that_git_does_not_know_is_refused(repository, tmp_path):
    clone, builds = repository
    with (
        pytest.raises(InputError, match="--against nothing: git knows no such revision"),
        sides.revision_side(clone, "nothing", tmp_path, builds, print),
    ):
        pass


def test_an_extension_that_does_not_build_says_why_and_is_not_kept(repository, tmp_path, monkeypatch):
    clone, builds = repository
    (clone / "seqmoe/core/native/a.cpp").write_text("two")
    run = sides._run

    def failing(command):
        return subprocess.CompletedProcess(command, 1, "", "a.cpp: no") if "pip" in command else run(command)

    monkeypatch.setattr(sides, "_run", failing)
    with pytest.raises(sides.BuildError, match=r"now does not build: a\.cpp: no"):
        sides.working_side(clone, tmp_path, builds, print)
    assert not (builds / sides.extension_key(clone)).exists()


def test_the_history_is_read_as_it_was_written(tmp_path):
    path = history_path(tmp_path, "box")
    points = [Point("abc+", "2026-01-01T00:00:00+00:00", "test_x.py::test_y[a,b]", 1.5e-6, "box")]
    append(path, points)
    append(path, points)
    assert path == tmp_path / "box" / "benchmarks.csv"
    assert read(path) == points * 2
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)
    assert read(tmp_path / "none.csv") == []
    path.write_text(path.read_text() + "1,2,3,fast,5\n")
    with pytest.raises(InputError, match=r"benchmarks\.csv:4"):
        read(path)
    path.write_text("a,b\n")
    with pytest.raises(InputError, match="expected revision, time"):
        read(path)


def test_a_report_of_pytest_benchmark_becomes_rows():
    report = {
        "datetime": "2026-01-01T00:00:00+00:00",
        "benchmarks": [{"fullname": "benchmarks/test_x.py::test_y[core]", "stats": {"median": 0.25}}],
    }
    (point,) = points_of(report, "abc", "box")
    assert (point.benchmark, point.median) == ("test_x.py::test_y[core]", 0.25)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "no-such-revision"], "git knows no such revision"),
        (["--against", "HEAD", "--threshold", "0"], "--threshold 0.0: must lie in (0, 10)"),
        (["--against", "HEAD", "--rounds", "3"], "--rounds 3: at least 8"),
        (["--against", "HEAD", "-x"], "-x: unknown beside --against"),
    ],
)
def test_wrong_input_ends_in_2(capsys, arguments, message):
    assert command.main(arguments) == 2
    assert message in capsys.readouterr().err


def outcome(name, slower, reason=""):
    times = {clock: noisy(1.0) for clock in runs.CLOCKS}
    timed = () if reason else (Timed(name, times, times),)
    differences = {clock: (difference(times[clock], times[clock]),) for clock in runs.CLOCKS}
    return Outcome(name, slower, timed, differences, reason)


def test_a_regression_ends_in_1_and_what_one_side_lacks_in_0(capsys):
    assert command._report([outcome("a", False), outcome("b", False, "cannot be run at old")], 0.1) == 0
    assert command._report([outcome("a", False), outcome("b", True)], 0.1) == 1
    assert "SLOWER" in capsys.readouterr().out
    assert command._report([outcome("b", False, "x")], 0.1) == 1, "nothing timed is nothing passed"


def test_the_child_is_a_program_of_its_own():
    """It must not bring this installation's package along, or both sides would be timed with it."""
    code = f"import runpy, sys; runpy.run_path({str(Path(runs.__file__).with_name('child.py'))!r}); "
    code += "print(json.dumps([name for name in sys.modules if name.startswith('seqmoe')]))"
    done = subprocess.run(
        [sys.executable, "-c", "import json; " + code], capture_output=True, text=True, check=True, cwd=os.sep
    )
    assert json.loads(done.stdout) == []
