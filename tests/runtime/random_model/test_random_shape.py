"""Protects what is built without a checkpoint: a declared model's own geometry, its sizes, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from random_models import opened, tiny_model, tiny_traces

from seqmoe.runtime import memory_plan
from seqmoe.runtime.available_memory import Available
from seqmoe.runtime.random_model.opened import Opened, RandomModel
from seqmoe.runtime.random_model.shape import random_checkpoint, stored_bytes
from seqmoe.runtime.random_model.weights import fill_experts, random_non_experts
from seqmoe.spec.errors import InputError, OutOfMemoryError
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import find_home
from seqmoe.spec.system import system
from seqmoe.traces.store import write_store

HOME = find_home()
DECLARED = sorted(path.stem for path in (HOME.suites / "models").glob("*.toml"))


@pytest.mark.parametrize("name", DECLARED)
def test_every_declared_model_has_its_own_sizes(name) -> None:
    model = load_model(HOME, name)
    for layers in (0, 2):
        checkpoint = random_checkpoint(model, model.top_k, layers)
        geometry = checkpoint.geometry
        assert (geometry.layers, geometry.experts, geometry.top_k) == (
            layers or model.layers,
            model.experts,
            model.top_k,
        )
        assert stored_bytes(checkpoint.format, model.format) == pytest.approx(model.expert_bytes, rel=0.005)


def test_fewer_layers_are_the_first_ones_and_never_more_than_there_are(tmp_path) -> None:
    model = tiny_model("gpt_oss", tmp_path)
    config = random_checkpoint(model, 3, 2).config
    assert (config.num_hidden_layers, len(config.layer_types)) == (2, 2)
    with pytest.raises(ValueError, match="layers = 9: tiny-gpt_oss has 4; give 1 to 4"):
        random_checkpoint(model, 3, 9)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers": 5}, "has 4 layers of 12 experts, declared are 5 of 12"),
        ({"experts": 13}, "declared are 4 of 13"),
        ({"expert_bytes": 4000}, "an expert of its class has 3072 bytes in bf16, declared are 4000"),
        ({"format": "fp8"}, "has 1536 bytes in fp8, declared are 3072"),
    ],
)
def test_a_declaration_that_is_not_the_classs_is_refused(tmp_path, changes, words) -> None:
    model = tiny_model("olmoe", tmp_path)
    with pytest.raises(InputError, match=words):
        random_checkpoint(replace(model, **changes), 3)


def test_no_two_experts_are_alike(tmp_path) -> None:
    part = torch.empty(50, 8, 12, dtype=torch.bfloat16)
    fill_experts({"down": part}, 0.5)
    assert len({expert.float().numpy().tobytes() for expert in part}) == 50
    assert float(part.float().std()) == pytest.approx(0.5, rel=0.3)


def test_what_is_no_expert_is_initialised_as_a_new_model_is(tmp_path) -> None:
    model = tiny_model("gpt_oss", tmp_path)
    first, again = (random_non_experts(random_checkpoint(model, 3)) for _ in range(2))
    for (name, one), other in zip(first.named_parameters(), again.parameters(), strict=True):
        assert torch.isfinite(one).all() and torch.equal(one, other), name
    assert not list(first.model.layers[0].mlp.experts.parameters())
    assert first.model.rotary_emb.inv_freq.dtype == torch.float32 and first.lm_head.weight.dtype == torch.bfloat16


def test_traces_of_another_geometry_are_refused(tmp_path) -> None:
    model = tiny_model("olmoe", tmp_path / "model")
    other = tiny_model("mixtral", tmp_path / "other")
    short = replace(tiny_traces(replace(other, layers=2)), layers=2)
    write_store(short, tmp_path / "traces")
    with pytest.raises(InputError, match="routes 2 layers of 12 experts, which cannot be replayed on the 4 layers"):
        Opened.of(RandomModel(model, str(tmp_path / "traces")))
    assert Opened.of(RandomModel(model, str(tmp_path / "traces"), layers=2)).checkpoint.geometry.layers == 2


def test_what_does_not_fit_says_its_sum_before_anything_is_allocated(tmp_path, monkeypatch) -> None:
    found = opened("olmoe", tmp_path, requests=(0,))
    found.check_memory(system("lru"), 0.5, 1, 8)
    monkeypatch.setattr(memory_plan, "available_memory", lambda: Available(2**17, "a test"))
    with pytest.raises(OutOfMemoryError, match=r"host pool 0\.1 MiB \+ slot pool .* = .*or --layers below 4"):
        found.check_memory(system("lru"), 0.5, 1, 8)
    with pytest.raises(InputError, match="smallest legal residency"):
        found.check_memory(system("lru"), 0.01, 1, 8)
    assert np.isfinite(found.checkpoint.geometry.expert_bytes)
