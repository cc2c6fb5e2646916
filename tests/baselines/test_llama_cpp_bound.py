"""Protects the full profile's way: llama-cpp-python is called as it documents, by a stand-in for its module."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_samples import save_expressible

from seqmoe.reference.gguf_file.file import export_gguf
from seqmoe.spec.paths import find_home

WORKER = find_home(Path(__file__).parent).baselines / "llama_cpp" / "worker.py"
VOCABULARY, END = 288, 7
# Greedy tokens of the stand-in depend on everything since the last reset; its end of text always has the best score.
STAND_IN = f"""
import ctypes, sys


class Llama:
    def __init__(self, model_path, *, n_ctx, n_threads, n_threads_batch, n_gpu_layers, type_k, type_v, flash_attn,
                 verbose):
        if not open(model_path, "rb").read(4) == b"GGUF":
            raise ValueError("Failed to load model from file: " + model_path)
        print("opened", n_ctx, n_threads, n_threads_batch, n_gpu_layers, type_k, type_v, flash_attn, file=sys.stderr)
        self.model, self.ctx, self.seen = "model", self, []

    def n_vocab(self):
        return {VOCABULARY}

    def reset(self):
        self.seen = []

    def eval(self, tokens):
        self.seen += tokens

    def close(self):
        print("closed", file=sys.stderr)


def llama_model_get_vocab(model):
    return "vocabulary of the " + model


def llama_vocab_is_eog(vocabulary, token):
    return vocabulary == "vocabulary of the model" and token == {END}


def llama_get_logits_ith(context, place):
    assert place == -1
    scores = (ctypes.c_float * {VOCABULARY})()
    scores[{END}] = 9.0
    scores[sum(context.seen) % {VOCABULARY - END - 1} + {END + 1}] = 1.0
    return ctypes.cast(scores, ctypes.POINTER(ctypes.c_float))
"""


@pytest.fixture
def table(request_table, tmp_path, monkeypatch):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "llama_cpp.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    folder = save_expressible("qwen3_moe", tmp_path / "model")
    path = export_gguf(folder, tmp_path / "model.gguf")
    return request_table | {"model_path": str(path), "model_format": "gguf", "threads": 3, "decode_tokens": 5}


def expected(prompt, tokens):
    seen, said = list(prompt), []
    for _ in range(tokens):
        said.append(sum(seen) % (VOCABULARY - END - 1) + END + 1)
        seen.append(said[-1])
    return said


def test_prompts_are_decoded_greedily_with_end_of_text_masked_and_nothing_kept_between(table, run_worker):
    events, log = run_worker(WORKER, table)
    assert events[-1] == {"event": "done"}, events[-1]
    said = [[event["token"] for event in events if event["event"] == "token" and event["prompt"] == number]
            for number in range(2)]  # fmt: skip
    assert said == [expected(prompt, 5) for prompt in table["prompts"]]
    # A context of the longest prompt with its output, as many threads as asked for, keys and values in float32.
    assert "opened 8 3 3 0 0 0 False" in log and "closed" in log
    told = {event["name"]: event.get("value") for event in events if event["event"] == "stat"}
    assert told["resident_bytes"] == told["expert_bytes"] and told["threads"] == 3


def test_batches_are_refused_and_the_worker_goes_on(table, run_worker):
    together = table | {"cell": {"residency": 1.0, "batch": 2}}
    events, _ = run_worker(WORKER, together, table | {"decode_tokens": 1})
    assert [(event["kind"], event["hint"][:21]) for event in events if event["event"] == "error"] == [
        ("unsupported", "install the quick pro")
    ]
    assert events[-1] == {"event": "done"}
