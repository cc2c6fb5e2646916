"""Protects collection as a whole: what is stored, resumed after a kill, shared by processes, and refused."""

from __future__ import annotations

import multiprocessing
import os
import socket

import numpy as np
import pytest
import torch
from collect_models import FAMILIES, build
from transformers import AutoModelForCausalLM, AutoTokenizer

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, PREFILL
from seqmoe.traces.collect import collector
from seqmoe.traces.collect.collector import collect
from seqmoe.traces.collect.request import CollectOptions, Prompt
from seqmoe.traces.collect.routing import RoutingRecorder
from seqmoe.traces.source import digest
from seqmoe.traces.store import open_store

PROMPTS = [Prompt(f"p{n}", "set", text) for n, text in enumerate(("one and two", "a", "def f(x):", "end", "Why?"))]
_ROUND = 3
OPTIONS = CollectOptions(tokens=6, samples=2, batch=3, engine="transformers", pack_tokens=20)


@pytest.fixture(autouse=True)
def small_rounds(monkeypatch):
    monkeypatch.setattr(collector, "_ROUND", _ROUND)


@pytest.fixture(scope="module")
def whole(tiny_checkpoint, tmp_path_factory):
    """A collection that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "store"
    collect(str(tiny_checkpoint), PROMPTS, out, OPTIONS)
    return out


def test_requests_are_what_a_plain_forward_says(tiny_checkpoint, whole):
    traces = open_store(whole)
    assert (traces.layers, traces.experts, traces.top_k, traces.model_top_k) == (4, 12, 3, 3)
    assert traces.router == "softmax_renormalised"
    assert traces.expert_bytes == 3 * 32 * 32 * 4
    assert [request.identifier for request in traces.requests] == [f"p{n}/{s}" for n in range(5) for s in range(2)]
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    for number, request in enumerate(traces.requests):
        prompt = tokenizer(PROMPTS[number // 2].text).input_ids
        assert request.prompt_length == len(prompt)
        assert request.token_ids[: len(prompt)].tolist() == prompt
        assert request.phase.tolist() == [PREFILL] * len(prompt) + [DECODE] * (len(request.token_ids) - len(prompt))
        assert request.decode_steps <= OPTIONS.tokens - 1  # the last token is never read
        with torch.no_grad():
            logits = model(torch.tensor([request.token_ids.tolist()]), output_router_logits=True).router_logits
        for layer, row in enumerate(logits):
            weights, experts = row.softmax(-1).topk(3)
            assert np.array_equal(request.experts[:, layer], experts.numpy())
            assert np.allclose(request.weights[:, layer], weights / weights.sum(-1, keepdim=True), atol=1e-4)
            assert np.allclose(request.logits[:, layer], row.gather(1, experts), atol=1e-3)
    assert traces.requests[0].dataset == "set"
    first, second = (traces.requests[index].token_ids.tolist() for index in (0, 1))
    assert first != second  # two samples of one prompt


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_generates_and_traces(family, tiny_checkpoint, tmp_path):
    model, adapter = build(family)
    model.save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path / "model")
    done = collect(str(tmp_path / "model"), PROMPTS, tmp_path / "store", OPTIONS)
    traces = open_store(tmp_path / "store")
    assert done.packed == adapter.packs
    assert traces.router == adapter.router_kind(model.config)
    recorder = RoutingRecorder(model, adapter)
    for request in traces.requests:
        alone = recorder.record([request.token_ids.tolist()], packed=False)[0]
        assert np.array_equal(request.experts, alone.experts)
        assert np.array_equal(request.early[:, 1:], alone.early[:, 1:])
        assert np.allclose(request.logits, alone.logits, atol=2e-3)


def in_child(target, *arguments):
    """A process of its own, not a fork: the libraries' threads hold locks that a fork would wait for."""
    child = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    child.start()
    return child


def exit_codes(*children):
    for child in children:
        child.join(timeout=240)
        if child.is_alive():
            child.kill()
            child.join()
    return [child.exitcode for child in children]


def killed_collection(checkpoint, out, after):
    calls = iter(range(after))
    record = RoutingRecorder.record

    def dying(self, *arguments, **named):
        if next(calls, None) is None:
            os._exit(9)
        return record(self, *arguments, **named)

    RoutingRecorder.record = dying
    collector._ROUND = _ROUND
    collect(str(checkpoint), PROMPTS, out, OPTIONS)


@pytest.mark.parametrize("after", [0, 2, 4])
def test_a_killed_collection_resumes_to_the_same_store(tiny_checkpoint, whole, tmp_path, after):
    out = tmp_path / "store"
    child = in_child(killed_collection, tiny_checkpoint, out, after)
    assert exit_codes(child) == [9]
    with pytest.raises(InputError, match="unfinished"):
        open_store(out)
    tokens = next((tmp_path / "store.collecting").glob("tokens-*"))
    with tokens.open("a") as stream:
        stream.write('\n{"p4/1": [1, 2')  # as a kill in the middle of writing leaves it
    collect(str(tiny_checkpoint), PROMPTS, out, OPTIONS)
    assert digest(open_store(out)) == digest(open_store(whole))
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_an_interrupt_keeps_finished_requests(tiny_checkpoint, whole, tmp_path, monkeypatch):
    told = []

    def interrupting(now):
        told.append(now)
        if now.done > 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(str(tiny_checkpoint), PROMPTS, tmp_path / "store", OPTIONS, report=interrupting)
    assert [now.done for now in told] == sorted(now.done for now in told)
    done = collect(str(tiny_checkpoint), PROMPTS, tmp_path / "store", OPTIONS, report=told.append)
    assert 0 < done.written < 10
    assert told[-1].stage == "done"
    assert told[-1].done == pytest.approx(told[-1].requests)
    assert digest(open_store(tmp_path / "store")) == digest(open_store(whole))


def test_a_finished_collection_loads_no_model(tiny_checkpoint, whole, monkeypatch):
    monkeypatch.setattr(collector.TracedModel, "load", None)
    done = collect(str(tiny_checkpoint), PROMPTS, whole, OPTIONS)
    assert (done.requests, done.written, done.packed) == (10, 0, None)


def one_rank(checkpoint, out, rank, port):
    from accelerate import PartialState

    PartialState._reset_state()
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})
    collector._ROUND = _ROUND
    collect(str(checkpoint), PROMPTS, out, OPTIONS)


def test_two_ranks_give_what_one_gives(tiny_checkpoint, whole, tmp_path):
    pytest.importorskip("accelerate")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [in_child(one_rank, tiny_checkpoint, tmp_path / "store", rank, port) for rank in (0, 1)]
    assert exit_codes(*children) == [0, 0]
    assert digest(open_store(tmp_path / "store")) == digest(open_store(whole))
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_stores_of_ranks_that_were_killed_are_gathered_by_one_process(tiny_checkpoint, whole, tmp_path):
    parts = tmp_path / "store.collecting"
    parts.mkdir()
    child = in_child(killed_collection, tiny_checkpoint, parts / "rank-1", 4)
    assert exit_codes(child) == [9]
    assert list((parts / "rank-1").glob("*.arrow"))
    collect(str(tiny_checkpoint), PROMPTS, tmp_path / "store", OPTIONS)
    found, expected = open_store(tmp_path / "store"), open_store(whole)
    by_name = {request.identifier: request for request in found.requests}
    assert by_name.keys() == {request.identifier for request in expected.requests}
    for request in expected.requests:
        assert np.array_equal(by_name[request.identifier].experts, request.experts)


def test_more_samples_are_added_and_other_options_refused(tiny_checkpoint, tmp_path):
    out, few = tmp_path / "store", CollectOptions(tokens=3, samples=1, engine="transformers")
    collect(str(tiny_checkpoint), PROMPTS, out, few)
    more = CollectOptions(tokens=3, samples=2, engine="transformers")
    assert collect(str(tiny_checkpoint), PROMPTS, out, more).written == 5
    for options, prompts in (
        (CollectOptions(tokens=4, samples=2), PROMPTS),
        (CollectOptions(tokens=3, samples=2, seed=1), PROMPTS),
        (more, [*PROMPTS[:4], Prompt("p4", "set", "another text")]),
    ):
        with pytest.raises(InputError, match="collected otherwise"):
            collect(str(tiny_checkpoint), prompts, out, options)


def test_prompts_that_leave_no_room_are_skipped_by_name(tiny_checkpoint, tmp_path):
    prompts = [Prompt("long", "", "x" * 510), Prompt("short", "", "x")]
    done = collect(str(tiny_checkpoint), prompts, tmp_path / "store", OPTIONS)
    assert done.skipped == ("long",)
    assert len(open_store(tmp_path / "store").requests) == 2
    with pytest.raises(InputError, match="context of 512"):
        collect(str(tiny_checkpoint), prompts[:1], tmp_path / "none", OPTIONS)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "no prompts"),
        ([Prompt("a", "", "x"), Prompt("a", "", "y")], "unique"),
        ([Prompt("a", "", "")], "no tokens"),
    ],
)
def test_bad_prompts_are_refused(tiny_checkpoint, tmp_path, prompts, message):
    with pytest.raises(InputError, match=message):
        collect(str(tiny_checkpoint), prompts, tmp_path / "store", OPTIONS)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": 0}, "tokens = 0"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": 0.0, "samples": 2}, "would all be the same"),
        ({"engine": "magic"}, "engine"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        CollectOptions(**options)
