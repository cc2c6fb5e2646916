"""Protects the environments: made once, made again when requirements change, and never taken as made when half-made."""

from __future__ import annotations

import dataclasses
import subprocess

import pytest

from seqmoe.harness.environments import (
    InstallError,
    environment_python,
    install,
    installed_profile,
    is_installed,
)
from seqmoe.spec.baseline import Baseline
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import Home


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "declarations", tmp_path / "work", "clone")


@pytest.fixture
def baseline(tmp_path):
    """A system whose requirements are empty, so that nothing is fetched."""
    folder = tmp_path / "fake"
    folder.mkdir()
    for name in ("requirements.txt", "requirements-full.txt", "worker.py"):
        (folder / name).write_text(f"# {name}\n")
    return Baseline(
        name="Fake", title="Fake", homepage="", licence="MIT", python=">=3.11", model_format="hf",
        requirements={"quick": "requirements.txt", "full": "requirements-full.txt"}, residency="", hit_rate="",
        needs="nothing", install="", capability=(), folder=folder,
    )  # fmt: skip


def test_making_remaking_and_not_remaking(baseline, home):
    assert installed_profile(baseline, home) is None
    lines = []
    python = install(baseline, home, progress=lines.append)
    assert python == environment_python(baseline, home)
    assert lines
    prefix = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)
    assert prefix.stdout.strip() == str(home.environments / "fake")
    assert installed_profile(baseline, home) == "quick"

    mark = python.parent / "mark"
    mark.touch()
    lines.clear()
    assert install(baseline, home, progress=lines.append) == python
    assert (mark.exists(), lines) == (True, [])

    (baseline.folder / "requirements.txt").write_text("# another version\n")
    assert not is_installed(baseline, home)
    install(baseline, home)
    assert is_installed(baseline, home)
    assert not mark.exists()


@pytest.fixture
def without_commands(monkeypatch):
    """Replace venv and pip by a recorder that makes the interpreter's file."""
    ran = []

    def run(command, baseline, progress):
        ran.append(command)
        if command[1:3] == ["-m", "venv"]:
            folder = command[-1]
            subprocess.run(["mkdir", "-p", f"{folder}/bin"], check=True)
            subprocess.run(["touch", f"{folder}/bin/python"], check=True)

    monkeypatch.setattr("seqmoe.harness.environments._run", run)
    return ran


def test_profiles_have_one_environment_between_them(baseline, home, without_commands):
    install(baseline, home, "quick")
    install(baseline, home, "full")
    assert installed_profile(baseline, home) == "full"
    assert [command[-1] for command in without_commands if "install" in command] == [
        str(baseline.folder / "requirements.txt"),
        str(baseline.folder / "requirements-full.txt"),
    ]
    with pytest.raises(InputError, match="profile 'ful' is unknown; did you mean 'full'"):
        install(baseline, home, "ful")


def test_packages_to_remove_are_removed_and_count_for_the_stamp(baseline, home, without_commands):
    install(baseline, home)
    removing = dataclasses.replace(baseline, remove=("torchvision",))
    assert not is_installed(removing, home)
    install(removing, home)
    assert without_commands[-1][-3:] == ["uninstall", "-y", "torchvision"]


def test_an_interrupted_installation_counts_for_nothing(baseline, home, without_commands, monkeypatch):
    recorded = install.__globals__["_run"]

    def interrupted(command, *rest):
        recorded(command, *rest)
        if "install" in command:
            raise KeyboardInterrupt

    monkeypatch.setattr("seqmoe.harness.environments._run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        install(baseline, home)
    assert environment_python(baseline, home).exists()
    assert not is_installed(baseline, home)
    left_over = environment_python(baseline, home).parent / "left over"
    left_over.touch()
    monkeypatch.setattr("seqmoe.harness.environments._run", recorded)
    install(baseline, home)
    assert is_installed(baseline, home)
    assert not left_over.exists()


def test_a_failing_pip_is_told_with_its_last_words(baseline, home):
    (baseline.folder / "requirements.txt").write_text("./no-such-package\n")
    with pytest.raises(InstallError, match=r"Fake: .* ended with code 1; it said: .*no-such-package.*needs nothing"):
        install(baseline, home)
    assert not is_installed(baseline, home)
