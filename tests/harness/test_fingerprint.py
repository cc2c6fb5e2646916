"""A fingerprint says what a record ran on, is the same on every call, and gives nothing away."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from seqmoe.harness.fingerprint import fingerprint, host_id, load_average, software
from seqmoe.spec.paths import Home, find_home


@pytest.fixture
def repository(tmp_path):
    def git(*words):
        subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words],
            check=True, capture_output=True, text=True,
        )  # fmt: skip

    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "x")
    return tmp_path


def test_it_is_json_the_same_twice_and_holds_no_path_and_no_host_name() -> None:
    home = find_home(Path(__file__).parent)
    first = fingerprint(home)
    assert first == fingerprint(home)
    text = json.dumps(first)
    assert not re.search(r"\"/|(?:^|[^\w.])/(?:\w+/)", text)
    assert str(Path.home()) not in text and str(home.work) not in text
    assert socket.gethostname() not in text


def test_it_names_machine_and_software() -> None:
    found = fingerprint(find_home(Path(__file__).parent))
    assert found["cpu"]["cores"] == os.cpu_count()
    assert found["memory_gib"] > 0 and found["numa_nodes"] >= 1
    assert {"seqmoe", "torch", "numpy"} <= set(found["packages"])
    assert found["declarations"] in ("clone", "wheel")
    assert re.fullmatch(r"[a-z0-9-]+", found["host"])


def test_the_revision_and_whether_the_tree_was_clean(repository) -> None:
    head = subprocess.run(["git", "-C", str(repository), "rev-parse", "HEAD"], capture_output=True, text=True)
    home = Home(repository, repository, "clone")
    assert fingerprint(home)["git"] == {"revision": head.stdout.strip(), "dirty": False}
    (repository / "file").write_text("2")
    assert fingerprint(home)["git"]["dirty"] is True


def test_without_a_checkout_the_revision_is_missing_with_a_reason(tmp_path) -> None:
    assert "git" in fingerprint(Home(tmp_path, tmp_path, "clone"))["git"]["missing"]
    wheel = fingerprint(Home(tmp_path, tmp_path, "wheel"))
    assert "wheel" in wheel["git"]["missing"] and wheel["declarations"] == "wheel"


def test_a_gpu_is_told_by_nvidia_smi(tmp_path, monkeypatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA GeForce RTX 4090, 24564 MiB, 570.10, 4, 16'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = fingerprint(Home(tmp_path, tmp_path, "wheel"))
    assert found["gpus"] == [
        {"name": "NVIDIA GeForce RTX 4090", "memory": "24564 MiB", "driver": "570.10", "pcie_generation": "4",
         "pcie_width": "16"}
    ]  # fmt: skip
    assert found["host"].startswith("gpu-nvidia-geforce-rtx-4090-cpu-")


@pytest.mark.parametrize(
    ("cpu", "cores", "gpus", "expected"),
    [
        ("AMD EPYC 9654 96-Core Processor", 2, [], "cpu-amd-epyc-9654-2c"),
        ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", 8, [], "cpu-intel-xeon-platinum-8481c-8c"),
        ("AMD EPYC", 4, ["NVIDIA H200", "NVIDIA H200"], "gpu-nvidia-h200-2x-cpu-amd-epyc-4c"),
        ("../../x", 1, [], "cpu-x-1c"),
        ("", 1, [], "cpu-unknown-1c"),
    ],
)
def test_the_host_folder_is_made_of_parts_and_safe_as_a_name(cpu, cores, gpus, expected) -> None:
    assert host_id(cpu, cores, gpus) == expected


def test_software_is_what_may_mend_a_failure() -> None:
    environment = {"python": "3.11", "packages": {}, "git": {}, "memory_gib": 8, "load_average": 1}
    assert software(environment) == {"python": "3.11", "packages": {}, "git": {}}
    assert load_average() >= 0
