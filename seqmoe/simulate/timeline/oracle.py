"""Forecasts for synthetic routing: a noisy oracle with the recall that a predictor is reported to have.

It knows what the process has shown so far and sees a part of what is still to come: of the innovation (new burst and
surprise, the sum of which is Gaussian) it observes the truth plus noise, and shrinks what it observes by the share
that is information. So it errs where a real predictor does, on experts that are new rather than on those that persist.
One number per row of the forecast, that share, is solved for from the recall. Probabilities are calibrated: how often
an expert at that distance from the predicted top k was really chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmoe.traces.synthesis.process import Floats, Latents, RoutingProcess, chosen

# Tasks that are prefetched of each layer beyond top k, and rows of a forecast: the next step and eight more (paper).
EXTRA, ROWS = 3, 9
# Solving: halvings of the interval, and bins of the calibration of probabilities.
_HALVINGS, _BINS = 12, 60
_LEAST, _MOST = 1e-3, 0.9999


@dataclass(frozen=True, slots=True)
class Recall:
    """``next_step`` is the recall of the top k + 3 one step ahead, ``drop`` how much lower its mean over eight is."""

    next_step: float
    drop: float

    def of_row(self, row: int) -> float:
        """The recall of row ``row`` (0: one step ahead): it falls in a straight line, the mean over eight as told."""
        return self.next_step - self.drop / 3.5 * row


@dataclass(frozen=True, slots=True, eq=False)
class Oracle:
    """``information`` of each row (the share, 0 to 1), and its probability by ``margin`` [rows, bins]."""

    process: RoutingProcess
    top_k: int
    information: tuple[float, ...]
    margin: NDArray[np.float64]
    probability: NDArray[np.float64]

    def forecast(self, latents: Latents, generator: np.random.Generator, first: int = 0) -> Floats:
        """Float32 [steps, rows, layers, experts]: after step t, row j is P(active at t + 1 + j).

        0 before step ``first`` and where t + 1 + j is past the end.
        """
        steps, layers, experts = latents.slow.shape
        found = np.zeros((steps, ROWS, layers, experts), dtype=np.float32)
        noise = generator.standard_normal(latents.slow.shape, dtype=np.float32)
        for row in range(ROWS):
            ahead = row + 1
            if steps - first <= ahead:
                break
            part = Latents(latents.slow[first:], latents.burst[first:], latents.surprise[first:])
            value = _observed(self.process, part, noise[first:], ahead, self.information[row])
            distance = value - _threshold(value, self.top_k)
            found[first : steps - ahead, row] = np.interp(distance, self.margin[row], self.probability[row])
        return found


def fit_oracle(
    process: RoutingProcess, latents: Latents, top_k: int, recall: Recall, generator: np.random.Generator
) -> Oracle:
    """The oracle of that recall, solved for and calibrated on one request of the process.

    Raises ``ValueError`` for a recall below what the process gives away by itself.
    """
    noise = generator.standard_normal(latents.slow.shape, dtype=np.float32)
    truth = _active(latents.value, top_k)
    information, margins, probabilities = [], [], []
    for row in range(ROWS):
        ahead, wanted = row + 1, recall.of_row(row)
        low, high = _LEAST, _MOST
        if recall_of(process, latents, noise, ahead, low, top_k) > wanted:
            raise ValueError(f"recall {wanted:.3f}, {ahead} steps ahead: persistence alone gives more")
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if recall_of(process, latents, noise, ahead, middle, top_k) < wanted:
                low = middle
            else:
                high = middle
        information.append((low + high) / 2)
        value = _observed(process, latents, noise, ahead, information[-1])
        margin, probability = _calibrated(value - _threshold(value, top_k), truth[ahead:])
        margins.append(margin)
        probabilities.append(probability)
    return Oracle(process, top_k, tuple(information), np.array(margins), np.array(probabilities))


def recall_of(
    process: RoutingProcess, latents: Latents, noise: Floats, ahead: int, information: float, top_k: int
) -> float:
    """Recall of the top k + 3 of what the oracle observes ``ahead`` steps before."""
    value = _observed(process, latents, noise, ahead, information)
    predicted = _active(value, min(top_k + EXTRA, value.shape[-1]))
    truth = _active(latents.value[ahead:], top_k)
    return float((predicted & truth).sum() / truth.sum())


def _observed(process: RoutingProcess, latents: Latents, noise: Floats, ahead: int, information: float) -> Floats:
    """Expected value of every expert at steps ``ahead``.., as seen that many steps before."""
    memory = np.float32(process.burst_memory**ahead)
    known = latents.slow[ahead:] + memory * latents.burst[:-ahead]
    innovation = latents.burst[ahead:] - memory * latents.burst[:-ahead] + latents.surprise[ahead:]
    variance = process.burst**2 * (1 - process.burst_memory ** (2 * ahead)) + 1
    spread = np.sqrt(variance * (1 - information) / information)
    seen: Floats = known + np.float32(information) * (innovation + np.float32(spread) * noise[ahead:])
    return seen


def _threshold(value: Floats, top_k: int) -> Floats:
    """The k-th highest value of every layer, [steps, layers, 1]."""
    place = value.shape[-1] - top_k
    threshold: Floats = np.partition(value, place, axis=-1)[..., place : place + 1]
    return threshold


def _active(value: Floats, top_k: int) -> NDArray[np.bool_]:
    active = np.zeros(value.shape, dtype=bool)
    np.put_along_axis(active, chosen(value, top_k).astype(np.int64), True, axis=-1)
    return active


def _calibrated(distance: Floats, truth: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rate of truth by distance, non-decreasing: bin centres and rates, both [bins]."""
    inner = np.linspace(-4.0, 4.0, _BINS - 1)
    place = np.digitize(distance.ravel(), inner)
    count = np.bincount(place, minlength=_BINS)
    hits = np.bincount(place, weights=truth.ravel(), minlength=_BINS)
    width = inner[1] - inner[0]
    centres = np.concatenate([inner - width / 2, [inner[-1] + width / 2]])
    rates = np.where(count > 0, hits / np.maximum(count, 1), 0.0)
    return centres, np.maximum.accumulate(rates)
