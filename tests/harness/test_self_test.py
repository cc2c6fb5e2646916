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
from seqmoe.harness.self_test import SelfTest, install_and_test, self_test
from seqmoe.spec.baseline import load_baselines
from seqmoe.spec.errors import InputError


def declare_reference(home) -> None:
    """What a self-test runs: the reference model on the mixed prompts."""
    (home.suites / "models" / "reference.toml").write_text(
        (home.suites / "models" / "tiny.toml").read_text().replace('name = "tiny"', 'name = "reference"')
    )
    (home.suites / "datasets" / "mixed.toml").write_text(
        (home.suites / "datasets" / "few.toml").read_text().replace('name = "few"', 'name = "mixed"')
    )


def test_without_a_try_it_says_so(home, monkeypatch) -> None:
    declare_reference(home)
    write_baseline(home, '["cpu", "cuda"]')
    monkeypatch.setattr(seqmoe.harness.launch, "is_installed", lambda baseline, home: True)
    outcome = self_test(load_baselines(home.baselines)["rival"], home, run=False)
    assert outcome.line == "Rival: installed, not tried"
    assert outcome.as_dict() == {
        "name": "Rival", "status": "ok", "reason": "", "hint": "", "tokens": 0, "tried": False,
        "kernel": "", "trial": "",
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
    monkeypatch.setattr(environments, "install", lambda *_: None)
    monkeypatch.setattr(
        seqmoe.harness.self_test, "self_test", lambda baseline, home, run: SelfTest("Rival", status, 0, tried=run)
    )
    ended, entry, _ = baselines(home, monkeypatch, capsys, *(["--install", "rival"] if install else []))
    assert (ended, entry["status"]) == (code, status.kind)


def baselines(home, monkeypatch, capsys, *arguments):
    """Run `seqmoe baselines ... --json` in that home; returns exit code, the one baseline's entry, stderr."""
    monkeypatch.chdir(home.work)
    monkeypatch.setattr(sys, "argv", ["seqmoe", "baselines", *arguments, "--json"])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    printed = capsys.readouterr()
    (entry,) = json.loads(printed.out.splitlines()[-1])["baselines"]
    return stopped.value.code, entry, printed.err


def test_an_installation_that_fails_is_told_as_json_too(home, monkeypatch, capsys) -> None:
    declare_reference(home)

    def fails(requested, *_):
        raise environments.InstallError(requested.name, "pip ended with code 1; it said: no such wheel", "needs a net")

    monkeypatch.setattr(environments, "install", fails)
    code, entry, err = baselines(home, monkeypatch, capsys, "--install", "rival")
    assert (code, entry["status"], entry["hint"]) == (1, "not_installed", "needs a net")
    assert "no such wheel" in entry["reason"] and "no such wheel" in err


def test_what_could_never_run_here_is_not_downloaded(home, monkeypatch, capsys) -> None:
    declare_reference(home)
    monkeypatch.setattr(seqmoe.harness.self_test, "fingerprint", lambda home: {"gpus": []})
    ran = []
    monkeypatch.setattr(environments, "install", lambda baseline, *_: ran.append(baseline.name))
    write_baseline(home, '["cuda"]')
    code, entry, _ = baselines(home, monkeypatch, capsys, "--install", "rival")
    assert (code, entry["status"], ran) == (1, "unsupported", [])
    # it serves other models than the reference model here, so whoever asks for it gets it
    declared = home.baselines / "rival" / "baseline.toml"
    declared.write_text(
        declared.read_text().replace('["cuda"]', '["cpu"]').replace('families = ["*"]', 'families = ["x"]')
    )
    _, entry, _ = baselines(home, monkeypatch, capsys, "--install", "rival")
    assert (entry["status"], ran) == ("unsupported", ["Rival"])
    with pytest.raises(InputError, match="profile 'ful' is unknown"):
        install_and_test(load_baselines(home.baselines)["rival"], home, "ful")
