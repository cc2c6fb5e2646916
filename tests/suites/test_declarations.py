"""Every declaration of suites/ can be read, is whole, and agrees with the paper's own arithmetic."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from seqmoe.reference.recipe import Recipe
from seqmoe.spec.dataset import dataset_file, load_dataset
from seqmoe.spec.hardware import load_hardware
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import find_home
from seqmoe.spec.suite import load_suite
from seqmoe.spec.system import SYSTEMS

HOME = find_home(Path(__file__).parent)
MODELS = sorted(path.stem for path in (HOME.suites / "models").glob("*.toml"))
HARDWARE = sorted(path.stem for path in (HOME.suites / "hardware").glob("*.toml"))
DATASETS = sorted(path.stem for path in (HOME.suites / "datasets").glob("*.toml"))
BASELINES = {"llama.cpp", "KTransformers", "MoE-Infinity", "FreeToken", "vLLM"}


def paper_bars() -> list[dict[str, str]]:
    with (HOME.paper / "fig6.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("profile", ["quick", "full"])
def test_every_name_in_the_suite_is_declared(profile: str) -> None:
    cells = load_suite(HOME.suites / "fig6.toml").cells(profile)
    assert {cell.model for cell in cells} <= set(MODELS)
    assert {cell.dataset for cell in cells} <= set(DATASETS)
    assert {cell.hardware for cell in cells} <= {"host", *HARDWARE}
    assert {cell.system for cell in cells} <= {*SYSTEMS, *BASELINES}
    for cell in cells:
        load_model(HOME, cell.model).geometry.slots(cell.residency)


def test_quick_runs_on_a_machine_without_a_gpu_and_holds_what_the_readme_promises() -> None:
    cells = load_suite(HOME.suites / "fig6.toml").cells("quick")
    assert {cell.model for cell in cells} == {"reference"}
    emulated = {(cell.system, cell.residency) for cell in cells if cell.lane == "emulated"}
    assert {(s, r) for s in ("lru", "seqmoe") for r in (0.15, 0.25, 0.35, 0.45)} <= emulated
    assert ("full", 1.0) in emulated and {s for s, _ in emulated} <= set(SYSTEMS)
    measured = {(cell.system, cell.residency) for cell in cells if cell.lane == "measured"}
    assert {(s, r) for s in BASELINES for r in (0.15, 0.25, 0.35, 0.45)} <= measured
    assert {("full", 1.0), ("llama.cpp", 1.0), ("vLLM", 1.0)} <= measured


def test_full_covers_the_models_residencies_and_batches_of_the_paper() -> None:
    cells = load_suite(HOME.suites / "fig6.toml").cells("full")
    titles = {name: load_model(HOME, name).title for name in MODELS}
    ours = {(titles[cell.model], cell.residency) for cell in cells if cell.panel == "decode-short"}
    bars = paper_bars()
    assert {(bar["model"], float(bar["x"])) for bar in bars if bar["panel"] == "decode-short"} <= ours
    batches = {(titles[cell.model], cell.batch) for cell in cells if cell.panel == "batch"}
    assert {(bar["model"], int(bar["x"])) for bar in bars if bar["panel"] == "batch"} <= batches


def test_reference_is_declared_as_its_recipe_makes_it() -> None:
    recipe, model = Recipe(), load_model(HOME, "reference")
    assert (model.layers, model.experts, model.top_k) == (recipe.layers, recipe.experts, recipe.top_k)
    assert model.expert_bytes == 3 * recipe.hidden_size * recipe.expert_width * 2


@pytest.mark.parametrize(
    ("name", "active", "experts", "parameters", "bytes_per_parameter"),
    [
        ("qwen3-30b-a3b-fp8", 8, 128, 29e9, 1.0),
        ("qwen3.6-35b-a3b-bf16", 8, 256, 32e9, 2.0),
        ("gpt-oss-120b-mxfp4", 4, 128, 115e9, 4.25 / 8),
        ("deepseek-v4-flash", 6, 256, 277e9, 4.25 / 8),
    ],
)
def test_sizes_agree_with_table_1(
    name: str, active: int, experts: int, parameters: float, bytes_per_parameter: float
) -> None:
    model = load_model(HOME, name)
    assert (model.top_k, model.experts) == (active, experts)
    total = model.geometry.total_experts * model.expert_bytes / bytes_per_parameter
    assert total == pytest.approx(parameters, rel=0.01)


@pytest.mark.parametrize("name", HARDWARE)
def test_full_load_speeds_are_the_bars_of_figure_6(name: str) -> None:
    profile = load_hardware(HOME, name)
    full = {bar["model"]: float(bar["value"]) for bar in paper_bars()
            if bar["system"] == "FullLoad" and bar["panel"] == "decode-short"}  # fmt: skip
    for model, load in profile.full_load.items():
        declared = load_model(HOME, model)
        assert load.decode_tok_s == full[declared.title]
        assert (load.layers, load.expert_bytes) == (declared.layers, declared.expert_bytes)


def test_rtx4090_moves_nine_tenths_of_an_expert_per_layer() -> None:
    # 1 / (122.7 * 48) s a layer = 169.8 us; 4,718,592 bytes at 25 GB/s = 188.7 us
    assert load_hardware(HOME, "rtx4090").emulated_overlap_ratio == pytest.approx(169.8 / 188.7, rel=1e-3)


@pytest.mark.parametrize("name", DATASETS)
def test_datasets_are_declared_with_a_licence(name: str) -> None:
    dataset = load_dataset(HOME, name)
    assert dataset.licence and (dataset.hub_id or dataset_file(HOME, dataset).is_file())


def test_our_own_prompts_are_sixty_in_five_kinds_and_the_first_five_are_of_all_kinds() -> None:
    dataset = load_dataset(HOME, "mixed")
    rows = [json.loads(line) for line in dataset_file(HOME, dataset).read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 60 and len({row["id"] for row in rows}) == 60 and len({row["text"] for row in rows}) == 60
    assert all(set(row) == {"id", "kind", "text"} for row in rows)
    assert len({row["kind"] for row in rows[:5]}) == 5
    assert {sum(row["kind"] == kind for row in rows) for kind in {row["kind"] for row in rows}} == {12}
