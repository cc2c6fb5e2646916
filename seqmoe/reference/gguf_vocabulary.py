"""A byte-level BPE vocabulary from tokenizer.json, in the form that GGUF stores."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import TokenType

from seqmoe.reference.recipe import END_OF_TEXT
from seqmoe.spec.errors import InputError

# How Qwen2 cuts text before BPE, as published; the reference model's tokenizer is trained with it. llama.cpp knows the
# split by name ("qwen2"), so the name is written for this one only.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """``tokens`` in id order with a `TokenType` each; ``merges`` as "left right" in rank order; the end-of-text id."""

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    end_of_text: int


def read_vocabulary(path: Path, size: int, end_of_text: int | None) -> Vocabulary:
    """Read tokenizer.json; ids that it leaves free up to ``size`` (the rows of the embedding) become unused tokens.

    ``end_of_text`` is the model's own end-of-text id, or None to take the tokenizer's. Raises `InputError` for another
    kind of tokenizer, another split than Qwen2's, or more tokens than ``size``.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; the GGUF needs the checkpoint's tokenizer")
    declared: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    model = declared["model"]
    if model.get("type") != "BPE" or not _splits_like_qwen2(declared.get("pre_tokenizer")):
        raise InputError(f"{path}: no byte-level BPE in Qwen2's pre-tokenization; llama.cpp would cut text differently")
    kinds = dict.fromkeys(model["vocab"].values(), TokenType.NORMAL)
    text = {identifier: token for token, identifier in model["vocab"].items()}
    for added in declared.get("added_tokens", []):
        text[added["id"]] = added["content"]
        kinds[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    if max(text) >= size:
        raise InputError(f"{path}: token id {max(text)} lies outside the model's vocab_size = {size}")
    if end_of_text is None:
        end_of_text = next((identifier for identifier, token in text.items() if token == END_OF_TEXT), None)
    if end_of_text is None or end_of_text not in text:
        raise InputError(f"{path}: no end-of-text token; set eos_token_id in config.json to one of the tokenizer's ids")
    merges = (merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"])
    return Vocabulary(
        tokens=tuple(text.get(identifier, f"[PAD{identifier}]") for identifier in range(size)),
        types=tuple(int(kinds.get(identifier, TokenType.UNUSED)) for identifier in range(size)),
        merges=tuple(merges),
        end_of_text=end_of_text,
    )


def _splits_like_qwen2(pre_tokenizer: dict[str, Any] | None) -> bool:
    steps = (pre_tokenizer or {}).get("pretokenizers", [])
    kinds = [step["type"] for step in steps]
    return kinds == ["Split", "ByteLevel"] and steps[0]["pattern"].get("Regex") == QWEN2_SPLIT
