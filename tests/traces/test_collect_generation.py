"""Protects the first pass: tokens follow the model's distribution, end where they should, and are reproducible."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from collect_models import build

from seqmoe.spec.errors import InputError
from seqmoe.traces.collect import generation
from seqmoe.traces.collect.generation import BatchedGenerator, VllmGenerator, use_vllm
from seqmoe.traces.collect.request import CollectOptions, Request, batches, request_seed

END = 256


def requests(*prompts):
    return [Request(f"r{n}", f"r{n}", "", tuple(prompt), request_seed(0, f"r{n}")) for n, prompt in enumerate(prompts)]


@pytest.fixture(scope="module")
def model():
    return build("qwen3_moe")[0]


ASKED = requests([5, 6, 7, 8, 9], [10], [11, 12, 13])


def test_greedy_padded_batch_equals_each_prompt_alone(model):
    options = CollectOptions(tokens=8, temperature=0, stop_at_end=False)
    found = BatchedGenerator(model, [END], options).generate(ASKED)
    for request, tokens in zip(ASKED, found, strict=True):
        ids = list(request.prompt)
        with torch.no_grad():
            for token in tokens:
                logits = model(torch.tensor([ids])).logits[0, -1]
                logits[END] = -torch.inf
                assert token == int(logits.argmax())
                ids.append(token)
        assert len(tokens) == 8


def test_samples_depend_on_the_request_not_on_its_neighbours(model):
    options = CollectOptions(tokens=8)
    together = BatchedGenerator(model, [END], options).generate(ASKED)
    alone = [BatchedGenerator(model, [END], options).generate([request])[0] for request in ASKED]
    assert together == alone
    assert together == BatchedGenerator(model, [END], options).generate(ASKED)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_tokens_follow_the_distribution(model, temperature):
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    generator = BatchedGenerator(model, [], CollectOptions(temperature=temperature))
    draws = [torch.Generator().manual_seed(seed) for seed in range(4000)]
    counts = generator._choose(logits.repeat(4000, 1), draws).bincount(minlength=4)
    expected = (logits / temperature).softmax(-1)
    assert torch.allclose(counts / 4000, expected, atol=4 * 0.5 / 4000**0.5)


def test_a_sequence_ends_with_its_first_end_of_text(model):
    free = BatchedGenerator(model, [], CollectOptions(tokens=12)).generate(ASKED)
    ends = [free[0][3], free[1][6]]
    steps = []
    options = CollectOptions(tokens=12)
    found = BatchedGenerator(model, ends, options).generate(ASKED, lambda done, tokens: steps.append((done, tokens)))
    for tokens, unbounded in zip(found, free, strict=True):
        stop = next((index for index, token in enumerate(unbounded) if token in ends), 11)
        assert tokens == unbounded[: stop + 1]
    assert steps[-1] == (3, sum(map(len, found)))
    ignoring = BatchedGenerator(model, ends, CollectOptions(tokens=12, stop_at_end=False)).generate(ASKED)
    assert all(len(tokens) == 12 and not set(tokens) & set(ends) for tokens in ignoring)


def test_batches_keep_order_and_length():
    asked = requests([1], [2], [3, 4], [5, 6], [7, 8])
    assert [len(batch) for batch in batches(asked, 2, equal_lengths=False)] == [2, 2, 1]
    equal = list(batches(asked, 2, equal_lengths=True))
    assert [len(batch) for batch in equal] == [2, 2, 1]
    assert [len(batch) for batch in batches(asked, 4, equal_lengths=True)] == [2, 3]
    assert [request for batch in equal for request in batch] == asked


class Sampling:
    def __init__(self, **given):
        self.__dict__.update(given)


class Engine:
    """Answers each prompt with itself and two digits of its seed."""

    def __init__(self, model, seed):
        self.model = model

    def generate(self, prompts, parameters):
        assert all(prompt.keys() == {"prompt_token_ids"} for prompt in prompts)
        return [
            SimpleNamespace(outputs=[SimpleNamespace(token_ids=(*prompt["prompt_token_ids"], given.seed % 100))])
            for prompt, given in zip(prompts, parameters, strict=True)
        ]


def test_vllm_is_asked_request_by_request(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=Engine, SamplingParams=Sampling))
    generator = VllmGenerator("model", [END], CollectOptions(tokens=4))
    assert generator.generate(ASKED) == [[*request.prompt, request.seed % 100] for request in ASKED]
    generator.close()


def test_vllm_is_taken_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(generation.importlib.util, "find_spec", lambda name: object())
    assert use_vllm("auto", 1)
    assert not use_vllm("auto", 2)
    assert not use_vllm("transformers", 1)
    with pytest.raises(InputError, match="one process"):
        use_vllm("vllm", 2)
    monkeypatch.setattr(generation.importlib.util, "find_spec", lambda name: None)
    assert not use_vllm("auto", 1)
    with pytest.raises(InputError, match="not installed"):
        use_vllm("vllm", 1)
