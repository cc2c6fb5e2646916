"""Small real inputs, and the command in this process, that several tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine must not fail a test: nothing here is about time.
settings.register_profile("seqmoe", deadline=None)
settings.load_profile("seqmoe")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real traces and prompts; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("SEQMOE_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}; set SEQMOE_DATA to a folder that has traces/ and prompts/")
    return folder


@pytest.fixture
def seqmoe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int | str | None, str, str]]:
    """Run `seqmoe ARGS` in this process; returns exit code, stdout, stderr."""
    from seqmoe import __main__ as command

    def run(*args: object) -> tuple[int | str | None, str, str]:
        monkeypatch.setattr(sys, "argv", ["seqmoe", *map(str, args)])
        with pytest.raises(SystemExit) as stopped:
            command.main()
        printed = capsys.readouterr()
        return stopped.value.code, printed.out, printed.err

    return run


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3-MoE of 4 layers, 12 experts (no power of two), top-3, with a byte tokenizer."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM

    folder = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=300, hidden_size=32, intermediate_size=64, moe_intermediate_size=32, num_hidden_layers=4,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, num_experts=12, num_experts_per_tok=3,
        norm_topk_prob=True, max_position_embeddings=512, tie_word_embeddings=True, initializer_range=0.3,
    )  # fmt: skip
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    alphabet = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet | {"<|endoftext|>": 256}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>").save_pretrained(folder)
    return folder
