"""Protects the declarations: strict TOML, the paper's crosses, and a reason for whatever cannot be run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from baselines.freetoken import worker as freetoken
from baselines.ktransformers import worker as ktransformers
from baselines.llama_cpp.placement import CPU_ONLY_FULL_LOAD
from baselines.moe_infinity import worker as moe_infinity
from seqmoe.reference.gguf_file.families import FAMILIES
from seqmoe.spec.baseline import ANY, find_baseline, load_baselines
from seqmoe.spec.errors import InputError
from seqmoe.spec.paths import find_home

FOLDER = find_home(Path(__file__).parent).baselines
GPU_ONLY = ("ktransformers", "moe_infinity", "freetoken")


@pytest.fixture(scope="module")
def baselines():
    return load_baselines(FOLDER)


def test_the_five_rivals_have_the_papers_names_and_transformers_its_own(baselines):
    assert {key: baseline.name for key, baseline in baselines.items()} == {
        "freetoken": "FreeToken",
        "ktransformers": "KTransformers",
        "llama_cpp": "llama.cpp",
        "moe_infinity": "MoE-Infinity",
        "transformers": "Transformers",
        "vllm": "vLLM",
    }


@pytest.mark.parametrize("key", ["llama_cpp", "vllm"])
def test_a_host_without_a_gpu_runs_the_reference_model_at_full_load_only(baselines, key):
    assert baselines[key].supports("qwen3_moe", "bf16", "cpu", 1.0) is None
    assert baselines[key].supports("qwen3_moe", "bf16", "cpu", 0.45) == CPU_ONLY_FULL_LOAD


@pytest.mark.parametrize("key", GPU_ONLY)
def test_the_others_need_a_gpu_whatever_the_residency(baselines, key):
    for residency in (0.45, 1.0):
        assert baselines[key].supports("qwen3_moe", "bf16", "cpu", residency)
    assert baselines[key].supports("qwen3_moe", "bf16", "cuda", 0.45) is None


@pytest.mark.parametrize(
    ("key", "family", "format", "crossed"),
    [
        ("ktransformers", "gpt_oss", "mxfp4", True),
        ("freetoken", "qwen3_moe", "fp8", True),
        ("moe_infinity", "deepseek_v4", "mxfp4", True),
        ("ktransformers", "qwen3_moe", "fp8", False),
        ("moe_infinity", "qwen3_moe", "fp8", False),
        ("freetoken", "gpt_oss", "mxfp4", False),
    ],
)
def test_figure_six_has_a_cross_where_the_matrix_refuses(baselines, key, family, format, crossed):
    assert (baselines[key].supports(family, format, "cuda", 0.45) is not None) == crossed


def test_an_unnamed_case_is_refused_and_named(baselines):
    reason = baselines["vllm"].supports("llama", "bf16", "cuda", 1.0)
    assert "no row for llama in bf16 on cuda" in reason


@pytest.mark.parametrize(
    ("key", "families"),
    [
        ("freetoken", freetoken.FAMILIES),
        ("ktransformers", ktransformers.FAMILIES),
        ("moe_infinity", tuple(moe_infinity.FAMILIES)),
    ],
)
def test_worker_and_matrix_agree_on_the_families(baselines, key, families):
    rows = [row for row in baselines[key].capability if row.supported]
    assert {family for row in rows for family in row.families} == set(families)


def test_what_llama_cpp_runs_is_what_the_export_writes(baselines):
    rows = [row for row in baselines["llama_cpp"].capability if row.supported]
    assert {family for row in rows for family in row.families} == {name.removesuffix("_text") for name in FAMILIES}


def test_pins_are_exact_and_every_reason_is_said(baselines):
    for baseline in baselines.values():
        for profile, name in baseline.requirements.items():
            lines = [line for line in (baseline.folder / name).read_text().splitlines() if not line.startswith("#")]
            assert lines or baseline.bare[profile]
            assert all(re.search(r"==[\w.]+$| @ git\+https://", line) for line in lines)
        assert all("==" in pin for pins in baseline.bare.values() for pin in pins)
        assert f"nox -s {baseline.session}" in baseline.install
        assert all(row.reason for row in baseline.capability if not row.supported)
        assert not any(ANY in row.families for row in baseline.capability if row.supported)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('licence = "', 'license = "MIT"\nlicence = "', "unknown key 'license'; did you mean 'licence'"),
        ('licence = "MIT"', "", "key 'licence' is missing"),
        ('model_format = "gguf"', 'model_format = "ggml"', "model_format = 'ggml'; did you mean 'gguf'"),
        ('devices = ["cuda"]', 'devices = ["cudaa"]', r"capability\[0\]: devices: 'cudaa'; did you mean 'cuda'"),
        ('residency = "full"', 'residency = "ful"', "residency = 'ful'; did you mean 'full'"),
        ("supported = false", 'supported = "no"', "expected bool"),
        ('reason = "the gguf package', '# "', "needs a reason"),
        ('formats = ["fp8"]', "formats = []", "formats is empty"),
        ('full = "requirements-full.txt"', "", "name one file for each of quick, full"),
        ('quick = "requirements.txt"', 'quick = "requirement.txt"', "requirement.txt: no such file"),
        ('name = "llama.cpp"', 'folder = "x"\nname = "llama.cpp"', "unknown key 'folder'"),
    ],
)
def test_a_mistake_in_the_declaration_is_named(tmp_path, old, new, message):
    shutil.copytree(FOLDER / "llama_cpp", tmp_path / "llama_cpp")
    path = tmp_path / "llama_cpp" / "baseline.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=message) as error:
        load_baselines(tmp_path)
    assert str(path) in str(error.value)


def test_a_baseline_is_found_by_folder_or_by_name(baselines):
    assert find_baseline(baselines, "llama.cpp") is find_baseline(baselines, "llama_cpp")
    assert find_baseline(baselines, "llama-cpp") is find_baseline(baselines, "llama_cpp")
    assert find_baseline(baselines, "llama.cpp (bf16)").gguf("llama.cpp (bf16)") == "bf16"
    with pytest.raises(InputError, match="did you mean 'llama_cpp'"):
        find_baseline(baselines, "lama_cpp")
