"""What the two forms of AmanPriyanshu/GPT-OSS-MoE-ExpertFingerprinting have in common.

The publication records GPT-OSS-20B (32 experts in each of 24 layers, top-4), decode tokens only: its weights are the
softmax over the chosen experts. Token numbers are positions, so the first one is the length of the prompt.
"""

from __future__ import annotations

from typing import Any

ROUTER = "softmax_renormalised"
MODEL = "gpt-oss-20b"
_LAYERS, _EXPERTS, _TOP_K = 24, 32, 4


def expert_count(layers: int, top_k: int, largest: int) -> int:
    """Experts per layer: the model's where the geometry is its own, else the largest id that occurs, plus one."""
    own = (layers, top_k) == (_LAYERS, _TOP_K) and largest < _EXPERTS
    return _EXPERTS if own else max(largest + 1, top_k)


def model_top_k(layers: int, top_k: int) -> int:
    """The model's own top-k where the geometry is its own, else 0."""
    return _TOP_K if (layers, top_k) == (_LAYERS, _TOP_K) else 0


def identifier(about: dict[str, Any]) -> str:
    """``dataset/row``, the same in both forms; empty where a file does not tell."""
    row = about.get("row", about.get("row_index"))
    return f"{about.get('dataset', '')}/{row}" if row is not None else ""
