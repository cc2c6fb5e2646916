"""How good networks are on sequences that they were not trained on, and how sure they may be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from seqmoe.predictor.confidence import Confidence, fit_line
from seqmoe.predictor.network import RangedNetworks
from seqmoe.predictor.trained import TrainedPredictor
from seqmoe.predictor.training.batches import Batch, BatchSource
from seqmoe.predictor.training.losses import divergence
from seqmoe.predictor.training.options import LOOKAHEAD

_SEQUENCES = 16
_STEPS = 384
_STRIDE = 32
_EXTRA = 3


@dataclass(frozen=True, slots=True)
class Validation:
    """``loss`` is the KL divergence; both recalls are of the top k + 3, ``rollout`` the mean over eight steps."""

    loss: float
    recall: float
    rollout: float


def validate(networks: RangedNetworks, predictor: TrainedPredictor, source: BatchSource) -> Validation:
    """Measure networks, and the predictor made of them, on some sequences of ``source``."""
    loss = recall = rollout = 0.0
    active, rolled, rows = 0, 0, 0
    top = min(predictor.top_k + _EXTRA, predictor.experts)
    for batch in _sequences(source):
        with torch.inference_mode():
            logits = networks(batch.inputs.to(predictor.device)).logits[0, :-1].cpu()
        target = batch.targets[0, 1:]
        present = (target > 0).any(-1)
        if not present.any():
            continue
        loss += float(divergence(logits[present], target[present])) * int(present.sum())
        rows += int(present.sum())
        hit = (target > 0).gather(-1, logits.topk(top, -1).indices)
        recall += int(hit[present].sum())
        active += int((target > 0).sum())
        hits, needed = _rolled(predictor, batch.inputs[0].numpy(), batch.targets[0].numpy() > 0, top)
        rollout, rolled = rollout + hits, rolled + needed
    return Validation(loss / max(rows, 1), recall / max(active, 1), rollout / max(rolled, 1))


def calibrate(predictor: TrainedPredictor, source: BatchSource) -> list[Confidence]:
    """For each range the lines from log softmax to the chance of being active, one per step of a rollout."""
    uncalibrated = [Confidence.uncalibrated(predictor.top_k) for _ in predictor.ranges]
    predictor.confidence = uncalibrated
    pairs: list[list[tuple[list[np.ndarray], list[np.ndarray]]]] = [
        [([], []) for _ in range(LOOKAHEAD + 1)] for _ in predictor.ranges
    ]
    for batch in _sequences(source):
        active = batch.targets[0].numpy() > 0
        positions, probability = predictor.forecast_sequence(batch.inputs[0].numpy(), LOOKAHEAD, _STRIDE)
        # Back from the uncalibrated odds to the log softmax.
        odds = np.clip(probability, np.finfo(np.float32).tiny, 1 - 1e-7)
        share = np.log(odds) - np.log1p(-odds) - np.log(predictor.top_k)
        for step in range(LOOKAHEAD + 1):
            seen = positions + 1 + step < len(active)
            outcome = active[positions[seen] + 1 + step]
            for index, (first, last) in enumerate(predictor.ranges):
                present = outcome[:, first:last].any(-1)
                pairs[index][step][0].append(share[seen, step, first:last][present])
                pairs[index][step][1].append(outcome[:, first:last][present])
    lines = []
    for per_step in pairs:
        fitted = [fit_line(np.concatenate(x), np.concatenate(y)) for x, y in per_step if sum(map(len, x))]
        lines.append(Confidence(np.array(fitted, dtype=np.float32)) if fitted else uncalibrated[0])
    return lines


def _sequences(source: BatchSource) -> Iterator[Batch]:
    for index in range(min(len(source.traces.requests), _SEQUENCES)):
        batch = source.whole(index, _STEPS)
        if batch.inputs.shape[1] > 1:
            yield batch


def _rolled(predictor: TrainedPredictor, inputs: np.ndarray, active: np.ndarray, top: int) -> tuple[int, int]:
    """Hits and activations of all eight steps of a rollout."""
    positions, probability = predictor.forecast_sequence(inputs, LOOKAHEAD, _STRIDE)
    chosen = np.argpartition(probability, -top, axis=-1)[..., -top:]
    hits = needed = 0
    for step in range(LOOKAHEAD + 1):
        seen = positions + 1 + step < len(active)
        outcome = active[positions[seen] + 1 + step]
        hits += int(np.take_along_axis(outcome, chosen[seen, step], axis=-1).sum())
        needed += int(outcome.sum())
    return hits, needed
