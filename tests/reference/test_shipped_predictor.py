"""Protects the Mamba2 predictor that ships: small, described, and better than repeating the last token."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer

from seqmoe.predictor.container import read_container
from seqmoe.predictor.evaluation import evaluate, recall
from seqmoe.predictor.kinds import load_predictor
from seqmoe.predictor.previous import Previous
from seqmoe.reference.card import collect_routing
from seqmoe.reference.release import CHECKPOINT
from seqmoe.runtime.engine import Engine

PATH = CHECKPOINT / "predictor" / "mamba2.safetensors"


@pytest.fixture(scope="module")
def traces():
    """Routing of the reference model on a licence's prose, which no predictor was trained on."""
    text = (CHECKPOINT.parent.parent.parent / "LICENSE").read_text(encoding="utf-8")
    tokens = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json")).encode(text).ids
    engine = Engine.load(CHECKPOINT)
    found = collect_routing(engine, np.array(tokens[:1200], dtype=np.int64), 4)
    engine.close()
    return found


def test_it_is_small_and_says_how_it_was_made():
    about, _ = read_container(PATH)
    assert PATH.stat().st_size < 5e6
    assert about["kind"] == "mamba2" and about["geometry"] == {"layers": 12, "experts": 64, "top_k": 6}
    training = about["training"]
    assert training["model"] == "reference" and training["curve"] and training["options"]["kind"] == "mamba2"


def test_it_forecasts_better_than_repeating_the_last_token(traces):
    shipped = evaluate(load_predictor(PATH), traces, stride=8)
    repeated = evaluate(Previous(traces.layers, traces.experts, traces.top_k), traces, stride=8)
    assert recall(shipped, 3) > recall(repeated, 3) + 0.05
