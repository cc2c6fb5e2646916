"""Protects the comparison on every family: llama.cpp says the tokens of our own runtime on the same checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_samples import CHANGES, save_expressible, save_packed

from seqmoe.harness.environments import environment_python, is_installed
from seqmoe.reference.gguf_file.file import export_gguf
from seqmoe.runtime.engine import Engine
from seqmoe.spec.baseline import load_baselines
from seqmoe.spec.paths import find_home

TOKENS = 32
PROMPTS = [[3, 1, 4, 1, 5], list(range(1, 60))]
HOME = find_home(Path(__file__).parent)
WORKER = HOME.baselines / "llama_cpp" / "worker.py"
YARN = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True,
        "original_max_position_embeddings": 4096, "rope_theta": 150000.0}  # fmt: skip
CASES = {name: (name, {}) for name in CHANGES} | {"gpt_oss with YaRN": ("gpt_oss", {"rope_parameters": YARN})}

PACKED = "gpt_oss in MXFP4"


@pytest.fixture(scope="module")
def python():
    baseline = load_baselines(HOME.baselines)["llama_cpp"]
    if not is_installed(baseline, HOME):
        pytest.skip("llama.cpp's environment is not installed here; make it with: nox -s baseline-llama-cpp")
    return environment_python(baseline, HOME)


@pytest.mark.parametrize("case", [*CASES, PACKED])
def test_greedy_tokens_are_our_runtimes(case, python, run_worker, tmp_path):
    if case == PACKED:
        folder, tokens = save_packed(tmp_path), 8  # llama.cpp rounds what it multiplies with packed weights
    else:
        name, changes = CASES[case]
        folder, tokens = save_expressible(name, tmp_path, **changes), TOKENS
    engine = Engine.load(folder)
    ours = [engine.generate(prompt, tokens).tokens for prompt in PROMPTS]
    assert all(len(set(said)) > 4 for said in ours), "a text that repeats itself proves little"
    request = {
        "protocol": 1, "cell": {"system": "llama.cpp", "residency": 1.0, "batch": 1}, "model_format": "gguf",
        "model_path": str(export_gguf(folder, tmp_path / "model.gguf")), "prompts": PROMPTS, "decode_tokens": tokens,
        "device": "cpu", "threads": 1, "warmup": False,
    }  # fmt: skip
    events, _ = run_worker(WORKER, request, python=python)
    assert events[-1] == {"event": "done"}, events[-1]
    theirs = [[event["token"] for event in events if event["event"] == "token" and event["prompt"] == number]
              for number in range(len(PROMPTS))]  # fmt: skip
    assert theirs == ours
