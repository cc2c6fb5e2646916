"""The families that an export writes, by Transformers' ``model_type``, and which llama.cpp's architecture each is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqmoe.reference.gguf_file.decoder import Decoder
from seqmoe.reference.gguf_file.gpt_oss import GptOss
from seqmoe.reference.gguf_file.mixtral import Mixtral
from seqmoe.reference.gguf_file.olmoe import Olmoe
from seqmoe.reference.gguf_file.qwen3_5_moe import Qwen35Moe
from seqmoe.reference.gguf_file.qwen3_moe import Qwen3Moe
from seqmoe.spec.errors import InputError

FAMILIES: dict[str, Decoder] = {
    "gpt_oss": GptOss(),
    "mixtral": Mixtral(),
    "olmoe": Olmoe(),
    "qwen3_5_moe": Qwen35Moe(),
    "qwen3_5_moe_text": Qwen35Moe(),
    "qwen3_moe": Qwen3Moe(),
}


def decoder_of(config: Any, checkpoint: Path) -> Decoder:
    """The family's decoder.

    Raises `InputError` for a family that is not written, and for a configuration that llama.cpp cannot express, naming
    file, key and value.
    """
    path, kind = checkpoint / "config.json", config.model_type
    if kind not in FAMILIES:
        names = ", ".join(name for name in FAMILIES if not name.endswith("_text"))
        raise InputError(f"{path}: model_type = {kind!r}: as GGUF these families are written: {names}")
    decoder = FAMILIES[kind]
    for key, right in decoder.demands(config):
        if not right:
            raise InputError(
                f"{path}: {key} = {getattr(config, key, None)!r}: llama.cpp's {decoder.architecture} is {decoder.needs}"
            )
    return decoder
