"""Mamba2 in plain PyTorch: chunks for training and prefill, one step in place for decoding and rollout."""

from __future__ import annotations

from typing import Any

from seqmoe.predictor.base import Predictor
from seqmoe.predictor.container import Tensors


def restore(about: dict[str, Any], tensors: Tensors) -> Predictor:
    """The Mamba2 predictor that a file describes (paper, section 5)."""
    from seqmoe.predictor.trained import restore as restore_trained  # it imports this package

    return restore_trained(about, tensors)
