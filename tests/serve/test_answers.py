"""Protects what OpenAI's clients read: whole answers and streams say the same, and the same as the runtime alone."""

from __future__ import annotations

import json

import pytest
from conftest import TEMPLATE

from seqmoe.runtime.sampling import Sampling


@pytest.fixture(scope="module")
def expected(tiny_checkpoint):
    """What the model says by itself, by prompt and sampling."""
    import seqmoe

    with seqmoe.load(tiny_checkpoint, 1.0, "full") as full:
        yield lambda prompt, sampling, tokens=12: full.generate(prompt, tokens, sampling).result.text


def _events(response):
    lines = [line for line in response.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


def test_an_answer_is_the_one_the_runtime_gives(served, expected):
    answer = served.complete("a prompt of some length").json()
    assert answer["object"] == "text_completion"
    (choice,) = answer["choices"]
    assert choice["text"] == expected("a prompt of some length", Sampling(ignore_end=True))
    assert choice["finish_reason"] == "length"
    assert answer["usage"] == {"prompt_tokens": 23, "completion_tokens": 12, "total_tokens": 35}


def test_a_seed_repeats_and_is_the_runtimes(served, expected):
    how = {"temperature": 1.2, "top_p": 0.9, "seed": 7}
    first, second = (served.complete("xyz", **how).json()["choices"][0]["text"] for _ in range(2))
    assert first == second == expected("xyz", Sampling(1.2, 0.9, 7, ignore_end=True))
    assert served.complete("xyz", **how | {"seed": 8}).json()["choices"][0]["text"] != first


def test_token_ids_and_a_list_of_one_prompt_are_prompts_too(served):
    texts = [served.complete(prompt).json()["choices"][0]["text"] for prompt in ("xy", ["xy"], list(b"xy"))]
    tokens = served.scheduler._session.tokenizer.encode("xy")
    texts += [served.complete(prompt).json()["choices"][0]["text"] for prompt in (tokens, [tokens])]
    assert texts[0] == texts[1] == texts[3] == texts[4]


def test_a_stream_says_the_same_and_ends_with_the_counts(served):
    whole = served.complete("abc", max_tokens=20).json()
    response = served.complete("abc", max_tokens=20, stream=True, stream_options={"include_usage": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    *chunks, usage = _events(response)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert (usage["choices"], usage["usage"]) == ([], whole["usage"])
    assert len({chunk["id"] for chunk in [*chunks, usage]}) == 1
    assert all(chunk["choices"] for chunk in _events(served.complete("abc", stream=True)))
    counted = _events(served.complete("abc", stream=True, stream_options={"continuous_usage_stats": True}))
    counts = [chunk["usage"]["completion_tokens"] for chunk in counted]
    assert counts == sorted(counts)
    assert counts[-1] == 12


def test_a_chat_is_the_templates_text(served, expected):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "temperature": 0, "ignore_eos": True}
    parts = body | {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}]
    }
    said = expected("user: hello\nassistant:", Sampling(ignore_end=True))
    assert TEMPLATE.endswith("assistant:")
    for options in ({"max_tokens": 12}, {"max_completion_tokens": 12}):
        for each in (body, parts):
            answer = served.client.post("/v1/chat/completions", json=each | options).json()
            assert answer["object"] == "chat.completion"
            assert answer["choices"][0]["message"] == {"role": "assistant", "content": said, "refusal": None}
    chunks = _events(served.client.post("/v1/chat/completions", json=body | {"max_tokens": 12, "stream": True}))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[-1] == {}
    assert "".join(delta.get("content", "") for delta in deltas) == said
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


def test_without_a_limit_a_chat_fills_the_context(serve_with, template):
    from seqmoe.serve.limits import Limits

    with serve_with(limits=Limits(batch=1, context=40), template=template) as server:
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hello"}],
            "temperature": 0,
            "ignore_eos": True,
        }
        answer = server.client.post("/v1/chat/completions", json=body).json()
        assert answer["usage"]["total_tokens"] == 40
        assert answer["choices"][0]["finish_reason"] == "length"


def test_a_stop_text_ends_it_wherever_tokens_begin(served):
    whole = served.complete("abc", max_tokens=40).json()["choices"][0]["text"]
    assert "\ufffd" in whole or len(whole) > 10
    for start, end in ((5, 6), (6, 9), (10, 16)):
        stop = whole[start:end]
        first = whole.index(stop)
        for stops in (stop, ["never said", stop]):
            answer = served.complete("abc", max_tokens=40, stop=stops).json()
            assert answer["choices"][0]["text"] == whole[:first]
            assert answer["choices"][0]["finish_reason"] == "stop"
            chunks = _events(served.complete("abc", max_tokens=40, stop=stops, stream=True))
            assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole[:first]
    answer = served.complete("abc", max_tokens=40, stop=["never said"]).json()
    assert answer["choices"][0]["text"] == whole


def test_the_model_is_named(served):
    (card,) = served.client.get("/v1/models").json()["data"]
    assert card["id"] == "tiny"
    assert served.client.get("/v1/models/tiny").json() == card
    missing = served.client.get("/v1/models/of/another")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    assert served.client.get("/health").json() == {"status": "ok"}
