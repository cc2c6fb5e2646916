"""From a finished training run to the folder that is shipped: weights, tokenizer, predictor and a measured card."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

from seqmoe.reference import card
from seqmoe.reference.recipe import Recipe
from seqmoe.reference.training import held_out_perplexity, prepare
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.profile import make_profile, write_profile
from seqmoe.spec.choice import FOLDER
from seqmoe.spec.errors import InputError

log = logging.getLogger(__name__)

CHECKPOINT = Path(__file__).parent / "checkpoint"
CARD = "card.json"
_COUNTED, _PROFILE = f"{FOLDER}/first_order.safetensors", f"{FOLDER}/popularity.safetensors"
_FITTED_WINDOWS = 400


def release(recipe: Recipe, training: Path, out: Path) -> dict[str, Any]:
    """Assemble ``out`` from the training folder; returns the card. The folder appears whole or not at all."""
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(training / "checkpoint", partial)
    _, data = prepare(recipe, training)
    engine = Engine.load(partial)
    log.info("fitting the first-order predictor and the profile on training text")
    (partial / _COUNTED).parent.mkdir(exist_ok=True)
    traces = card.collect_routing(engine, data.train, _FITTED_WINDOWS)
    predictor = card.fit_predictor(traces)
    predictor.save(partial / _COUNTED)
    made_from = {"text": "training text", "requests": _FITTED_WINDOWS, "score_with": _COUNTED}
    write_profile(partial / _PROFILE, make_profile(traces, predictor), traces.top_k, made_from)
    log.info("measuring routing and perplexity on held-out text")
    facts: dict[str, Any] = {
        "name": "seqmoe-reference",
        "purpose": "a small MoE workload that every machine can run; not a chatbot",
        "architecture": "Qwen3MoeForCausalLM",
        "recipe": recipe.as_dict(),
        "notes": _notes(training / "notes.txt"),
        "text": data.sources,
        "train_tokens_available": len(data.train),
        "held_out_tokens": len(data.held_out),
        "held_out_perplexity": {
            "model": held_out_perplexity(partial, data.held_out, recipe),
            **card.baseline_perplexity(data.train, data.held_out, recipe.vocabulary),
        },
        "learning_curve": [json.loads(line) for line in (training / "log.jsonl").read_text().splitlines()],
        "routing_on_held_out_text": card.measure_routing(engine, data.held_out),
    }
    engine.close()
    facts["bytes"] = card.checkpoint_bytes(partial)
    (partial / CARD).write_text(json.dumps(facts, indent=1) + "\n")
    shutil.rmtree(out, ignore_errors=True)
    os.replace(partial, out)
    return facts


def _notes(path: Path) -> list[str]:
    """What the person who trained wants said of the run: one line each, above all where it left the recipe."""
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def read_card(folder: Path = CHECKPOINT) -> dict[str, Any]:
    """The card of a released model folder."""
    path = folder / CARD
    if not path.is_file():
        raise InputError(f"{path}: no model card; `seqmoe reference train --out {folder}` makes the folder")
    facts: dict[str, Any] = json.loads(path.read_text())
    return facts
