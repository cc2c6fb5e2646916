"""Protects the families that the runtime takes: its decoding equals a plain forward, offloaded and at full load."""

from __future__ import annotations

import pytest
import torch
import transformers
from family_models import CONFIGS, save_tiny

from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.engine import Engine
from seqmoe.spec.system import system

PROMPT = list(range(1, 20))


@pytest.mark.parametrize("name", CONFIGS)
def test_decoding_equals_a_plain_forward(name, tiny_checkpoint, tmp_path):
    model = save_tiny(name, tmp_path, tiny_checkpoint)
    engine = Engine.load(tmp_path)
    engine.place_full()
    full = engine.generate(PROMPT, 10, keep_logits=True)
    with torch.no_grad():
        expected = model(torch.tensor([PROMPT + full.tokens[:-1]])).logits[0, len(PROMPT) - 1 :]
    assert torch.allclose(torch.stack(full.logits), expected, atol=1e-3)
    for residency in (0.45, 1 / 16):
        engine.place(system("lru"), residency, None, None)
        offloaded = engine.generate(PROMPT, 10, keep_logits=True)
        assert torch.equal(torch.stack(offloaded.logits), torch.stack(full.logits))
    engine.close()


def test_a_composite_checkpoint_is_its_text_model(tiny_checkpoint, tmp_path):
    config = transformers.Qwen3_5MoeConfig(
        text_config=CONFIGS["qwen3_5_moe"]().to_dict(),
        vision_config={
            "depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 32,
        },
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.Qwen3_5MoeForConditionalGeneration(config).eval()
    model.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path)
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.config.model_type == "qwen3_5_moe_text"
    checkpoint.check_lengths(PROMPT, 10)
    with pytest.raises(ValueError, match="context of 512"):
        checkpoint.check_lengths(PROMPT, 500)
    engine = Engine(checkpoint)
    with torch.no_grad():
        expected = model(torch.tensor([PROMPT])).logits[0, -1]
    assert torch.allclose(engine.generate(PROMPT, 1, keep_logits=True).logits[0], expected, atol=1e-3)
    engine.close()
