"""Prediction studies in words: how far a training is, and what came out."""

from __future__ import annotations

from typing import Any


def progress(event: dict[str, Any]) -> str:
    """How far a cell is: the training's minutes, tokens, loss and recall, or the step after it."""
    if event.get("stage") != "training":
        return str(event.get("stage", ""))
    parts = [f"{event.get('minutes', 0.0):.1f} min"]
    if event.get("tokens"):
        parts.append(f"{event['tokens'] / 1e6:.2f} M tokens")
    if event.get("loss") is not None:
        parts.append(f"loss {event['loss']:.3f}")
    if event.get("recall") is not None:
        parts.append(f"recall {event['recall']:.3f}")
    return ", ".join(parts)


def describe(observations: dict[str, Any]) -> str:
    """What came out: recall of the first k + 3, one step ahead and over the rollout."""
    from seqmoe.predictor.evaluation import Evaluation, recall

    evaluation = Evaluation.from_dict(observations["evaluation"])
    one, eight = recall(evaluation, 3), recall(evaluation, 3, "seq8")
    parts = [f"{name} {value:.3f}" for name, value in (("recall", one), ("Seq-8", eight)) if isinstance(value, float)]
    return ", ".join(parts) or "nothing to count"
