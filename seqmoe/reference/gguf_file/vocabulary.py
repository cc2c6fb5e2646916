"""A vocabulary from tokenizer.json, in the form that GGUF stores."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import TokenType

from seqmoe.reference.gguf_file.cutting import KNOWN, Cutting, cutting_of
from seqmoe.reference.recipe import END_OF_TEXT
from seqmoe.spec.errors import InputError

_BYTE = re.compile("<0x[0-9A-F]{2}>")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """``tokens`` in id order with a `TokenType` each; ``merges`` as "left right" in rank order; the end-of-text id.

    ``begin`` is the token that the tokenizer puts first, None where it puts none.
    """

    cutting: Cutting
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    end_of_text: int
    begin: int | None = None

    @property
    def scores(self) -> list[float]:
        """SentencePiece's, of which the best pair is joined first: by the rank of the merge that makes a token."""
        ranks: dict[str, int] = {}
        for rank, merge in enumerate(self.merges):
            ranks.setdefault(merge.replace(" ", ""), rank)
        return [-float(ranks.get(token, len(self.merges))) for token in self.tokens]


def read_vocabulary(path: Path, size: int, end_of_text: int | None) -> Vocabulary:
    """Read tokenizer.json; ids that it leaves free up to ``size`` (the rows of the embedding) become unused tokens.

    ``end_of_text`` is the model's own end-of-text id, or None to take the tokenizer's. Raises `InputError` for another
    kind of tokenizer, a way to cut text that llama.cpp has no name for, or more tokens than ``size``.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; the GGUF needs the checkpoint's tokenizer")
    declared: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    model = declared["model"]
    cutting = cutting_of(declared)
    if cutting is None:
        raise InputError(
            f"{path}: no BPE in a pre-tokenization of these: {', '.join(KNOWN)}; llama.cpp would cut text differently"
        )
    kinds = dict.fromkeys(model["vocab"].values(), TokenType.NORMAL)
    text = {identifier: token for token, identifier in model["vocab"].items()}
    for added in declared.get("added_tokens", []):
        text[added["id"]] = added["content"]
        kinds[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    if cutting.model == "llama":
        kinds |= {number: TokenType.BYTE for number, token in text.items() if _BYTE.fullmatch(token)}
        kinds |= {number: TokenType.UNKNOWN for number, token in text.items() if token == model.get("unk_token")}
    if max(text) >= size:
        raise InputError(f"{path}: token id {max(text)} lies outside the model's vocab_size = {size}")
    if end_of_text is None:
        end_of_text = next((identifier for identifier, token in text.items() if token == END_OF_TEXT), None)
    if end_of_text is None or end_of_text not in text:
        raise InputError(f"{path}: no end-of-text token; set eos_token_id in config.json to one of the tokenizer's ids")
    merges = (merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"])
    return Vocabulary(
        cutting=cutting,
        tokens=tuple(text.get(identifier, f"[PAD{identifier}]") for identifier in range(size)),
        types=tuple(int(kinds.get(identifier, TokenType.UNUSED)) for identifier in range(size)),
        merges=tuple(merges),
        end_of_text=end_of_text,
        begin=_begin(declared.get("post_processor")),
    )


def _begin(post_processor: dict[str, Any] | None) -> int | None:
    """The special token that a template puts before the text."""
    first = (post_processor or {}).get("single", [{}])[0].get("SpecialToken")
    return None if first is None else int(post_processor["special_tokens"][first["id"]]["ids"][0])  # type: ignore[index]
