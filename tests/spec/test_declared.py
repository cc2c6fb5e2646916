"""Declarations are strict: a typo names file, key and nearest valid one; broken invariants name the value."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqmoe.spec.dataset import Dataset, load_dataset
from seqmoe.spec.declared import build, declared_name, read_toml
from seqmoe.spec.errors import InputError
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import Home, find_home
from seqmoe.spec.suite import Cell, load_suite

HOME = find_home(Path(__file__).parent)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    for folder in ("models", "hardware", "datasets"):
        (tmp_path / "suites" / folder).mkdir(parents=True)
    return Home(tmp_path, tmp_path, "clone")


def altered(home: Home, file: str, old: str, new: str) -> Path:
    """A copy of a real declaration with one change."""
    text = (HOME.suites / file).read_text(encoding="utf-8")
    assert old in text
    path = home.suites / file
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def test_the_beginning_of_one_name_is_that_name() -> None:
    models = HOME.suites / "models"
    assert declared_name(models, "qwen3-30b", "model") == "qwen3-30b-a3b-fp8"
    assert declared_name(models, "reference", "model") == "reference"
    with pytest.raises(InputError, match="give one of gpt-oss-120b-mxfp4, gpt-oss-20b-mxfp4"):
        declared_name(models, "gpt-oss", "model")
    for wrong in ("qwem3-30b-a3b-fp8", ""):
        with pytest.raises(InputError, match="is not declared"):
            declared_name(models, wrong, "model")


def test_unknown_name_names_the_nearest_declared_one() -> None:
    with pytest.raises(InputError, match=r"'referense' .*did you mean 'reference'"):
        load_model(HOME, "referense")
    with pytest.raises(InputError, match="did you mean 'rtx4090'"):
        load_hardware(HOME, "rtx409")
    with pytest.raises(InputError, match="did you mean 'gsm8k'"):
        load_dataset(HOME, "gsm8")


def test_typo_in_a_suite_key_names_file_key_and_nearest(home: Home) -> None:
    path = altered(home, "fig6.toml", "residency = ", "residencies = ")
    with pytest.raises(InputError, match=r"fig6\.toml.*'residencies'; did you mean 'residency'"):
        load_suite(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("residency = [0.15", "residency = [1.5", r"residency = 1\.5: must lie in \(0, 1\]"),
        ("decode_tokens = [48]", "decode_tokens = [0]", "decode_tokens = 0: must be at least 1"),
        ("decode_tokens = [48]", "decode_tokens = 64", "expected a list"),
        ('lane = "emulated"', 'lane = "emulate"', "did you mean 'emulated'"),
        ('hardware = "rtx4090"', 'hardware = "host"', "needs a profile"),
        ('models = ["reference"]', "models = []", "models is empty"),
        ("schema = 1", "schema = 2", "upgrade"),
        ("repeats = 8", "repeats = 0", "must be at least 1"),
        ("[profile.quick]\n", "[profile.none]\nrepeats = 1\nblock = []\n[profile.quick]\n", "none: block is empty"),
    ],
)
def test_wrong_values_in_a_suite_are_named(home: Home, old: str, new: str, message: str) -> None:
    path = altered(home, "fig6.toml", old, new)
    with pytest.raises(InputError, match=message):
        load_suite(path)


def test_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'quick'"):
        load_suite(HOME.suites / "fig6.toml").cells("quik")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("expert_bytes = 4_718_592", "expert_byte = 4_718_592", "did you mean 'expert_bytes'"),
        ("expert_bytes = 4_718_592", "expert_bytes = 0", "must be positive"),
        ("top_k = 8", "top_k = 200", "has only 128 experts"),
        ("top_k = 8\n", 'top_k = 8\npath = "/weights"\n', "not both"),
        ('non_expert_bytes = "1,541', 'other = "1,541', "non_expert_bytes has no source"),
        ('name = "qwen3-30b-a3b-fp8"', 'name = "qwen"', "like the file"),
    ],
)
def test_wrong_values_in_a_model_are_named(home: Home, old: str, new: str, message: str) -> None:
    altered(home, "models/qwen3-30b-a3b-fp8.toml", old, new)
    with pytest.raises(InputError, match=message):
        load_model(home, "qwen3-30b-a3b-fp8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("link_sustained = 25.0", "link_sustained = 40.0", "link_peak = 31.5"),
        ("link_contended = 15.0", "link_contended = 26.0", "must lie in"),
        ('emulates = "qwen3-30b-a3b-fp8"', 'emulates = "qwen3-30b"', "did you mean 'qwen3-30b-a3b-fp8'"),
        ("memory = 24", "memory = '24'", "expected float"),
    ],
)
def test_wrong_values_in_a_hardware_profile_are_named(home: Home, old: str, new: str, message: str) -> None:
    altered(home, "hardware/rtx4090.toml", old, new)
    with pytest.raises(InputError, match=message):
        load_hardware(home, "rtx4090")


def test_a_dataset_is_either_a_file_or_a_hub_set() -> None:
    table = {"schema": 1, "name": "x", "title": "X", "licence": "MIT", "source": "us", "field": "text"}
    with pytest.raises(InputError, match="either file"):
        build(Dataset, table, "x.toml")
    with pytest.raises(InputError, match="split is missing"):
        build(Dataset, {**table, "hub_id": "a/b"}, "x.toml")
    with pytest.raises(InputError, match="a file has neither"):
        build(Dataset, {**table, "file": "x.jsonl", "split": "test"}, "x.toml")


def test_missing_and_malformed_files_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_toml(tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("name = ", encoding="utf-8")
    with pytest.raises(InputError, match=r"broken\.toml: not valid TOML"):
        read_toml(broken)


def test_cell_keys_differ_with_every_field_and_stay_the_same_across_runs() -> None:
    base = Cell("s", "p", "full", "m", "measured", 1.0, 1, "mixed", 4, 64)
    assert base.key == "26d2b30c640c"
    assert len({base.key, Cell("s", "p", "full", "m", "measured", 1.0, 2, "mixed", 4, 64).key}) == 2


def test_full_load_is_one_cell_whatever_the_residencies(home: Home) -> None:
    cells = load_suite(HOME.suites / "fig6.toml").cells("quick")
    assert len({cell.key for cell in cells}) == len(cells)
    assert sum(cell.system == "full" and cell.lane == "emulated" for cell in cells) == 1
