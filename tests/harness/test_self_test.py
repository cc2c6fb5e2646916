"""A self-test claims only what it tried, and a requested installation that does not work ends in exit code 1."""

from __future__ import annotations

import json
import sys

import pytest
from harness_samples import write_baseline

import seqmoe.harness.launch
from seqmoe import __main__ as command
from seqmoe.harness import environments
from seqmoe.harness.record import Status
from seqmoe.harness.self_test import SelfTest, self_test
from seqmoe.spec.baseline import load_baselines


def test_without_a_try_it_says_so(home, monkeypatch) -> None:
    (home.suites / "models" / "reference.toml").write_text(
        (home.suites / "models" / "tiny.toml").read_text().replace('name = "tiny"', 'name = "reference"')
    )
    (home.suites / "datasets" / "mixed.toml").write_text(
        (home.suites / "datasets" / "few.toml").read_text().replace('name = "few"', 'name = "mixed"')
    )
    write_baseline(home, '["cpu", "cuda"]')
    monkeypatch.setattr(seqmoe.harness.launch, "is_installed", lambda baseline, home: True)
    outcome = self_test(load_baselines(home.baselines)["rival"], home, run=False)
    assert outcome.line == "Rival: installed, not tried"
    assert outcome.as_dict() == {
        "name": "Rival", "status": "ok", "reason": "", "hint": "", "tokens": 0, "tried": False,
    }  # fmt: skip


def test_what_was_tried_says_what_came_of_it() -> None:
    assert "works here (8 tokens" in SelfTest("Rival", Status("ok"), 8, tried=True).line
    failed = SelfTest("Rival", Status("crash", "tail", "look"), 0, tried=True)
    assert failed.line == "Rival: crash: tail; look"


@pytest.mark.parametrize(
    ("status", "install", "code"),
    [
        (Status("ok"), True, 0),
        (Status("crash", "tail"), True, 1),
        (Status("unsupported", "no GPU"), True, 1),
        (Status("not_installed", "no weights"), True, 1),
        (Status("unsupported", "no GPU"), False, 0),
    ],
)
def test_the_exit_code_tells_whether_a_requested_installation_works(
    home, monkeypatch, capsys, status, install, code
) -> None:
    monkeypatch.chdir(home.work)
    monkeypatch.setattr(environments, "install", lambda *_: None)
    monkeypatch.setattr(
        seqmoe.harness.self_test, "self_test", lambda baseline, home, run: SelfTest("Rival", status, 0, tried=run)
    )
    monkeypatch.setattr(sys, "argv", ["seqmoe", "baselines", *(["--install", "rival"] if install else []), "--json"])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code == code
    (entry,) = json.loads(capsys.readouterr().out.splitlines()[-1])["baselines"]
    assert entry["status"] == status.kind
