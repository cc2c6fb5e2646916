"""How a tokenizer cuts text, by the names that llama.cpp has for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# How text is cut before BPE, as published with the models. llama.cpp knows each way by a name, which is written for
# these only; the reference model's tokenizer is trained with Qwen2's.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN35_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K_SPLIT = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {QWEN2_SPLIT: "qwen2", QWEN35_SPLIT: "qwen35", O200K_SPLIT: "gpt-4o"}
# The split that byte-level pre-tokenization has built in is GPT-2's.
_BUILT_IN = "gpt-2"
# SentencePiece's sign for a space.
_SPACE = "\u2581"


@dataclass(frozen=True, slots=True)
class Cutting:
    """``model`` is "gpt2" (byte-level BPE, cut first as ``split`` says) or "llama" (SentencePiece, no cut).

    With ``prefix`` SentencePiece puts a space before the text.
    """

    model: str
    split: str = ""
    prefix: bool = False


KNOWN = (*sorted({*_SPLITS.values(), _BUILT_IN}), "SentencePiece's")


def cutting_of(declared: dict[str, Any]) -> Cutting | None:
    """What tokenizer.json declares; None where llama.cpp would cut text differently."""
    if declared["model"].get("type") != "BPE":
        return None
    if declared["model"].get("byte_fallback"):
        return _sentence_piece(declared.get("normalizer"), declared.get("pre_tokenizer"))
    split = _split_of(declared.get("pre_tokenizer"))
    return None if split is None else Cutting("gpt2", split)


def _sentence_piece(normalizer: dict[str, Any] | None, pre_tokenizer: dict[str, Any] | None) -> Cutting | None:
    """Spaces become a sign, by a normalizer as in Llama 2's files or by a pre-tokenizer as in later ones.

    Of the latter one kind of text differs all the same: before a space of its own they put no other, llama.cpp does.
    """
    steps = (normalizer or {}).get("normalizers", [])
    if pre_tokenizer is None and steps and steps[-1] == {
        "type": "Replace", "pattern": {"String": " "}, "content": _SPACE
    }:  # fmt: skip
        before = steps[:-1]
        return (
            Cutting("llama", prefix=bool(before)) if before in ([], [{"type": "Prepend", "prepend": _SPACE}]) else None
        )
    later = pre_tokenizer or {}
    whole = later.get("type") == "Metaspace" and later.get("split") is False and later.get("replacement") == _SPACE
    if normalizer is None and whole and later.get("prepend_scheme") in ("first", "always", "never"):
        return Cutting("llama", prefix=later["prepend_scheme"] != "never")
    return None


def _split_of(pre_tokenizer: dict[str, Any] | None) -> str | None:
    """llama.cpp's name of a byte-level pre-tokenization; None where it is another."""
    whole = pre_tokenizer or {}
    steps = whole.get("pretokenizers", [whole])
    kinds = [step.get("type") for step in steps]
    if kinds == ["Split", "ByteLevel"]:
        return _SPLITS.get(steps[0]["pattern"].get("Regex"))
    alone = kinds == ["ByteLevel"] and steps[0].get("use_regex", True) and not steps[0].get("add_prefix_space")
    return _BUILT_IN if alone else None
