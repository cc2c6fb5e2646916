"""Tiny declared models without weights, and traces that they can replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from family_models import CONFIGS

from seqmoe.adapters.base import family_of
from seqmoe.runtime.random_model.opened import Opened, RandomModel
from seqmoe.spec.model import Model
from seqmoe.spec.trace import DECODE, MISSING, PREFILL, RequestTrace, TraceSet
from seqmoe.traces.store import write_store

PROMPT, STEPS = 5, 14
SOURCED = dict.fromkeys(("layers", "experts", "top_k", "expert_bytes", "non_expert_bytes"), "a test")


def tiny_model(family: str, folder: Path) -> Model:
    """The declaration of a tiny model of the family, whose folder has a configuration and nothing else."""
    config = CONFIGS[family]()
    config.save_pretrained(folder)
    shape = family_of(family).geometry(config, "bfloat16")
    return Model(
        schema=1, name=f"tiny-{family}", title="Tiny", licence="x", family=family, format="bf16", layers=shape.layers,
        experts=shape.experts, top_k=shape.top_k, expert_bytes=shape.expert_bytes, non_expert_bytes=1, sources=SOURCED,
        path=str(folder),
    )  # fmt: skip


def tiny_traces(model: Model, requests: int = 3, top_k: int = 3, missing: bool = True) -> TraceSet:
    """Requests with a random routing; the last layer of their prompts is partly missing."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(requests):
        steps = PROMPT + STEPS + number
        experts = np.argsort(rng.random((steps, model.layers, model.experts)), axis=-1)[..., :top_k].astype(np.int16)
        if missing:
            experts[: PROMPT - 1, -1] = MISSING
        weights = rng.random(experts.shape, dtype=np.float32) + 0.1
        phase = np.array([PREFILL] * PROMPT + [DECODE] * (steps - PROMPT), dtype=np.uint8)
        found.append(RequestTrace(experts, phase, weights=weights, identifier=f"r{number}", prompt_length=PROMPT))
    return TraceSet("tiny", model.layers, model.experts, top_k, tuple(found), router="softmax_renormalised")


def opened(family: str, folder: Path, **changes: object) -> Opened:
    """A tiny model with its traces in a store."""
    model = tiny_model(family, folder / "model")
    write_store(tiny_traces(model), folder / "traces")
    return Opened.of(RandomModel(model, str(folder / "traces"), **changes))  # type: ignore[arg-type]
