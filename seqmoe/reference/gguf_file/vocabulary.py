"""A byte-level BPE vocabulary from tokenizer.json, in the form that GGUF stores."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import TokenType

from seqmoe.reference.recipe import END_OF_TEXT
from seqmoe.spec.errors import InputError

# How text is cut before BPE, as published with the models. llama.cpp knows each way by a name, which is written for
# these only; the reference model's tokenizer is trained with Qwen2's.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN35_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_O200K_SPLIT = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {QWEN2_SPLIT: "qwen2", _QWEN35_SPLIT: "qwen35", _O200K_SPLIT: "gpt-4o"}
# The split that byte-level pre-tokenization has built in is GPT-2's.
_BUILT_IN = "gpt-2"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """``tokens`` in id order with a `TokenType` each; ``merges`` as "left right" in rank order; the end-of-text id.

    ``split`` is llama.cpp's name for how text is cut first.
    """

    split: str
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    end_of_text: int


def read_vocabulary(path: Path, size: int, end_of_text: int | None) -> Vocabulary:
    """Read tokenizer.json; ids that it leaves free up to ``size`` (the rows of the embedding) become unused tokens.

    ``end_of_text`` is the model's own end-of-text id, or None to take the tokenizer's. Raises `InputError` for another
    kind of tokenizer, a split that llama.cpp has no name for, or more tokens than ``size``.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; the GGUF needs the checkpoint's tokenizer")
    declared: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    model = declared["model"]
    split = _split_of(declared.get("pre_tokenizer"))
    if model.get("type") != "BPE" or split is None:
        known = ", ".join(sorted({*_SPLITS.values(), _BUILT_IN}))
        raise InputError(
            f"{path}: no byte-level BPE in a pre-tokenization of these: {known}; llama.cpp would cut text differently"
        )
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
        split=split,
        tokens=tuple(text.get(identifier, f"[PAD{identifier}]") for identifier in range(size)),
        types=tuple(int(kinds.get(identifier, TokenType.UNUSED)) for identifier in range(size)),
        merges=tuple(merges),
        end_of_text=end_of_text,
    )


def _split_of(pre_tokenizer: dict[str, Any] | None) -> str | None:
    """llama.cpp's name of a byte-level pre-tokenization; None where it is another."""
    whole = pre_tokenizer or {}
    steps = whole.get("pretokenizers", [whole])
    kinds = [step.get("type") for step in steps]
    if kinds == ["Split", "ByteLevel"]:
        return _SPLITS.get(steps[0]["pattern"].get("Regex"))
    alone = kinds == ["ByteLevel"] and steps[0].get("use_regex", True) and not steps[0].get("add_prefix_space")
    return _BUILT_IN if alone else None
