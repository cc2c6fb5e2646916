"""The Transformer probe: the paper's upper bound on what can be forecast (section 3.1), too slow for a runtime."""

from __future__ import annotations

from typing import Any

from seqmoe.predictor.base import Predictor
from seqmoe.predictor.container import Tensors
from seqmoe.predictor.trained import restore as restore_trained


def restore(about: dict[str, Any], tensors: Tensors) -> Predictor:
    """The Transformer probe that a file describes."""
    return restore_trained(about, tensors)
