"""Protects what people call: `seqmoe.load`, streaming, and Transformers' own models on our experts."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from family_models import CONFIGS, save_tiny
from transformers import AutoModelForCausalLM

import seqmoe
from seqmoe.predictor.first_order import FirstOrder
from seqmoe.runtime.text import TextStream
from seqmoe.spec.errors import InputError

TEXT = "a prompt of some length"


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    chance = np.random.default_rng(0).random((4, 12, 12), dtype=np.float32)
    path = tmp_path_factory.mktemp("predictor") / "first_order.safetensors"
    FirstOrder(chance / chance.sum(-1, keepdims=True) * 3, top_k=3, recent=0.5).save(path)
    return path


def test_a_session_streams_what_it_returns(tiny_checkpoint, predictor):
    with seqmoe.load(tiny_checkpoint, 1.0, "full") as full:
        expected = full.generate(TEXT, 20).result
    with seqmoe.load(tiny_checkpoint, residency=0.45, system="seqmoe", predictor=predictor) as session:
        stream = session.generate(TEXT, 20)
        pieces, rates = [], []
        for piece in stream:
            pieces.append(piece)
            rates.append(stream.hit_rate)
        result = stream.result
        assert "".join(pieces) == result.text == expected.text
        assert result.tokens == expected.tokens
        assert result.sha256 == expected.sha256
        assert rates[0] is None
        assert rates[-1] == result.hit_rate
        assert 0 <= result.hit_rate <= 1
        assert result.ttft_s == stream.ttft_s > 0
        assert result.decode_tok_s == stream.tok_s > 0
        assert session.generate_batch([TEXT, list(b"xy")], 5)[0] == session.tokenizer.decode(expected.tokens[:5])


def test_the_parts_of_a_step_add_up(tiny_checkpoint, predictor):
    with seqmoe.load(tiny_checkpoint, residency=0.45, predictor=predictor) as session:
        session.generate(TEXT, 30).result.as_dict()
        steps = session.engine.timers.steps()
        parts = session.engine.timers.breakdown()
    assert steps.shape == (29, 5)
    assert (steps >= 0).all()
    assert parts.total == pytest.approx(steps.sum())
    assert parts.predictor > 0
    assert parts.other < 0.2 * parts.total


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"residency": 1.5}, r"\(0, 1\]"),
        ({"residency": 0.0}, r"\(0, 1\]"),
        ({"system": "seqmo"}, "did you mean 'seqmoe"),
        ({"system": "seqmoe"}, "needs a predictor"),
        ({"system": "seqmoe_learned", "predictor": True}, "needs a profile"),
        ({"system": "popularity"}, "needs a profile"),
        ({"execution": "fast"}, "execution"),
        ({"dtype": "float16"}, "float16"),
        ({"host": "pinned"}, "CUDA"),
        ({"model": "nowhere"}, "no such folder"),
    ],
)
def test_what_does_not_fit_is_refused_before_loading(tiny_checkpoint, predictor, changed, message):
    arguments = {"model": tiny_checkpoint, "residency": 0.45, "system": "lru"} | changed
    if arguments.get("predictor"):
        arguments["predictor"] = predictor
    with pytest.raises(InputError, match=message):
        seqmoe.load(**arguments)


@pytest.mark.parametrize(("prompt", "tokens", "message"), [("", 4, "no tokens"), ("x" * 5000, 4, "context of 512")])
def test_impossible_prompts_are_refused(tiny_checkpoint, prompt, tokens, message):
    with seqmoe.load(tiny_checkpoint, system="lru") as session, pytest.raises(InputError, match=message):
        session.generate(prompt, tokens)


def test_a_prompt_of_one_token(tiny_checkpoint):
    with seqmoe.load(tiny_checkpoint, system="lru") as session:
        assert len(session.generate([7], 3).result.tokens) == 3


def test_bfloat16_gives_full_loads_tokens(tiny_checkpoint):
    with seqmoe.load(tiny_checkpoint, 1.0, "full", dtype="bfloat16") as full:
        expected = full.generate(TEXT, 20).result
    with seqmoe.load(tiny_checkpoint, 0.45, "lru", dtype="bfloat16") as session:
        result = session.generate(TEXT, 20).result
    assert result.tokens == expected.tokens
    assert result.bytes["on_demand"] > 0


@pytest.mark.parametrize("name", CONFIGS)
def test_transformers_own_models_on_our_experts(name, tiny_checkpoint, tmp_path):
    expected = save_tiny(name, tmp_path, tiny_checkpoint)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, experts_implementation="seqmoe", dtype=torch.float32).eval()
    ids = torch.tensor([list(range(1, 20)), list(range(21, 40))])
    how = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
    with torch.no_grad():
        theirs = expected.generate(ids, **how)
        if name == "gpt_oss":
            with pytest.raises(InputError, match="another layout"):
                model.generate(ids, **how)
        else:
            assert model.generate(ids, **how).tolist() == theirs.tolist()
        attached = seqmoe.offload(model, residency=0.5, system="lru")
        assert model.generate(ids, **how).tolist() == theirs.tolist()
        assert attached.statistics()["misses"] > 0
    attached.close()


def test_gradients_are_refused(tiny_checkpoint):
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint, experts_implementation="seqmoe", dtype=torch.float32)
    with pytest.raises(RuntimeError, match="inference only"):
        model(torch.tensor([[1, 2, 3]]))


def test_importing_seqmoe_does_not_import_torch():
    check = "import sys, seqmoe; assert 'torch' not in sys.modules; seqmoe.load; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=120)


class _Bytes:
    """A tokenizer of single bytes."""

    def decode(self, tokens):
        """Unfinished letters become replacement characters."""
        return bytes(tokens).decode("utf-8", errors="replace")


def test_letters_of_several_tokens_come_whole():
    text = "aé€😀b"
    stream = TextStream(_Bytes())
    pieces = [stream.add(byte) for byte in text.encode()]
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)
    assert [stream.add("€".encode()[0]), stream.rest()] == ["", "\ufffd"]
