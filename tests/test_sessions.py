"""Protects `nox -s reproduce-all`: every figure and table, training before replaying, and no failure stops the rest."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from seqmoe.spec.declared import read_toml
from seqmoe.spec.paths import find_home

nox_command = pytest.importorskip("nox.command", reason="nox runs the sessions")
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def sessions():
    spec = importlib.util.spec_from_file_location("seqmoe_noxfile", ROOT / "noxfile.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Session:
    """Takes note of what it is told to run; ``broken`` commands fail."""

    def __init__(self, *posargs: str, broken: tuple[str, ...] = ()) -> None:
        self.posargs, self.ran, self._broken = list(posargs), [], broken
        self.warned: list[str] = []

    def run(self, *command: str, **options: object) -> None:
        self.ran.append(" ".join(command))
        if any(text in self.ran[-1] for text in self._broken):
            raise nox_command.CommandFailed(reason="broken")

    def warn(self, text: str) -> None:
        self.warned.append(text)

    def error(self, text: str) -> None:
        raise SystemExit(text)


def reproduce(sessions, monkeypatch, session: Session) -> list[str]:
    monkeypatch.setattr(sessions, "_prepare", lambda _: None)
    sessions.reproduce_all.func(session)
    return session.ran


def test_every_figure_and_table_is_made_and_those_that_train_come_first(sessions, monkeypatch) -> None:
    ran = reproduce(sessions, monkeypatch, Session())
    home = find_home(ROOT)
    figures = {path.stem for path in home.suites.glob("fig*.toml")}
    assert {f"seqmoe bench {name}" for name in figures} <= set(ran)
    assert {"seqmoe table1", "seqmoe table2", "seqmoe bench sweep", "seqmoe bench fig6 --profile simulated"} <= set(ran)
    assert ran[-2:] == ["seqmoe report", "seqmoe verdict"]
    trains = [ran.index(f"seqmoe bench {name}") for name in figures
              if read_toml(home.suites / f"{name}.toml").get("study") == "prediction"]  # fmt: skip
    replays = [ran.index(f"seqmoe bench {name}") for name in figures
               if read_toml(home.suites / f"{name}.toml").get("study") == "replay"]  # fmt: skip
    assert trains and replays and max(trains) < min(replays)


def test_a_part_that_fails_is_named_at_the_end_and_stops_nothing(sessions, monkeypatch) -> None:
    session = Session(broken=("bench fig7", "bench sweep"))
    with pytest.raises(SystemExit, match="failed: fig7, simulated;"):
        reproduce(sessions, monkeypatch, session)
    assert session.ran == reproduce(sessions, monkeypatch, Session())
    assert session.warned == ["failed: seqmoe bench fig7", "failed: seqmoe bench sweep"]


def test_parts_are_chosen_by_name_and_wrong_names_refused(sessions, monkeypatch) -> None:
    ran = reproduce(sessions, monkeypatch, Session("fig3", "table2"))
    assert ran == ["seqmoe table2", "seqmoe bench fig3", "seqmoe report", "seqmoe verdict"]
    with pytest.raises(SystemExit, match="no such part: fig5; valid: table1"):
        reproduce(sessions, monkeypatch, Session("fig5"))
