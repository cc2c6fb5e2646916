"""A short answer of the reference model: a prompt of 8 tokens and 16 decode steps, one thread.

Ours at full load, interpreted, and with 45 % of the experts in slots under LRU (misses are plain copies in memory).
The peer is Transformers' own `generate` on the same checkpoint. The floor of a step is one pass over the weights that
it reads: everything but the experts, and six experts a layer, as sums of float32.
"""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from seqmoe.runtime.engine import Engine
from seqmoe.spec.model import load_model
from seqmoe.spec.paths import find_home
from seqmoe.spec.system import system

PROMPT, TOKENS = [40, 7, 300, 21, 9, 1000, 77, 5], 17


@pytest.fixture(scope="module")
def reference():
    torch.set_num_threads(1)
    return load_model(find_home(), "reference")


@pytest.fixture(scope="module")
def engine(reference):
    found = Engine.load(reference.location)
    yield found
    found.close()


@pytest.fixture(scope="module")
def theirs(reference):
    return AutoModelForCausalLM.from_pretrained(reference.location, dtype=torch.float32).eval()


def _ours(engine, name):
    engine.place(system(name), 0.45 if name != "full" else 1.0, None, None)
    return lambda: engine.generate(PROMPT, TOKENS).tokens


def _transformers(model):
    ids = torch.tensor([PROMPT])
    # No end of text, as ours: the same number of tokens whatever is said.
    settings = {"do_sample": False, "min_new_tokens": TOKENS, "max_new_tokens": TOKENS, "pad_token_id": 0}
    return lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **settings)[0, len(PROMPT) :].tolist()


def _reading(model, reference):
    others = [tensor for name, tensor in model.named_parameters() if ".experts." not in name]
    experts = [tensor[: reference.top_k] for name, tensor in model.named_parameters() if ".experts." in name]
    weights = [tensor for tensor in (*others, *experts)]
    return lambda: [tensor.sum() for _ in range(TOKENS - 1) for tensor in weights]


@pytest.mark.benchmark(group=f"a prompt of {len(PROMPT)} tokens and {TOKENS - 1} decode steps")
@pytest.mark.parametrize(
    "way", ["full", "lru", *(pytest.param(way, marks=pytest.mark.peer) for way in ("transformers", "floor"))]
)
@torch.inference_mode()
def test_decode(benchmark, request, engine, reference, way):
    answer = _ours(engine, "full")()
    if way in ("full", "lru"):
        run = _ours(engine, way)
    else:
        model = request.getfixturevalue("theirs")
        run = _reading(model, reference) if way == "floor" else _transformers(model)
    if way != "floor":  # the same tokens, before anything is timed
        assert run() == answer
    benchmark(run)
    benchmark.extra_info["us_per_token"] = round(1e6 * benchmark.stats.stats.median / TOKENS)
