"""Protects the names of baselines: each stands for one system, in records and on the command line."""

from __future__ import annotations

import shutil

import pytest

from seqmoe.spec.baseline import load_baselines
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import find_home

HOME = find_home()


@pytest.fixture
def folder(tmp_path):
    for name in ("vllm", "freetoken"):
        shutil.copytree(HOME.baselines / name, tmp_path / name)
    return tmp_path


def test_the_declared_baselines_have_names_of_their_own(folder):
    assert len(load_baselines(HOME.baselines)) == 6
    assert sorted(load_baselines(folder)) == ["freetoken", "vllm"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lru", r"vllm/baseline\.toml: name = 'lru': is a system of our own"),
        ("FreeToken", r"name = 'FreeToken': .*goes by it too"),
        ("freetoken", r"vllm/baseline\.toml: name = 'freetoken': .*freetoken goes by it too"),
    ],
)
def test_a_name_that_is_taken_is_refused(folder, name, message):
    declared = folder / "vllm" / "baseline.toml"
    declared.write_text(declared.read_text().replace('name = "vLLM"', f'name = "{name}"'))
    with pytest.raises(InputError, match=message):
        load_baselines(folder)
