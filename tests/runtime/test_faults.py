"""Protects against what happens to running systems: signals in the middle of a transfer, and long runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from seqmoe.predictor.first_order import FirstOrder
from seqmoe.runtime.engine import Engine
from seqmoe.runtime.retention import Offline
from seqmoe.spec.system import system

# Each expert takes some 9 ms, and every token needs twelve: at any moment a transfer is under way.
SLOW = [
    "generate", "--prompt", "some text", "--system", "naive", "--emulate", "rtx4090", "--dilation", "50",
    "--tokens", "400", "--threads", "1",
]  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_transfer_ends_everything_with_130(tiny_checkpoint, number):
    process = subprocess.Popen(
        [sys.executable, "-m", "seqmoe", *SLOW, "--model", str(tiny_checkpoint)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # What a shell starts in the background ignores Ctrl-C, and so would this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.read(1)  # the first token is out
    time.sleep(0.3)
    process.send_signal(number)
    assert process.wait(timeout=120) == 130  # what has all its tokens ends with 0
    assert b"interrupted" in process.stderr.read()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # no child is left of the group
    process.stdout.close()
    process.stderr.close()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ten_thousand_decode_steps_take_no_more_memory_than_the_first(tiny_checkpoint, tmp_path):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        vocab_size=300, hidden_size=16, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, head_dim=8,
        moe_intermediate_size=8, num_experts=12, num_experts_per_tok=3, initializer_range=0.3, eos_token_id=256,
        max_position_embeddings=256,
    )  # fmt: skip
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path)
    engine = Engine.load(tmp_path)
    chance = np.full((1, 12, 12), 0.25, dtype=np.float32)
    offline = Offline(np.full((1, 12), 0.25, dtype=np.float32))
    engine.place(system("seqmoe_tail"), 0.5, FirstOrder(chance, top_k=3, recent=0.5), None, offline)
    steps, after = 0, []
    while steps < 10_000:
        prompt = np.random.default_rng(steps).integers(0, 256, 6).tolist()
        steps += len(engine.generate(prompt, 250).tokens)
        after.append(_resident_bytes())
    engine.close()
    # Allocators settle in the first requests.
    assert max(after[20:]) - max(after[10:20]) < 4 * 2**20
