"""What a training does when: learning rate, phases, validations. Everything follows from the budget that is spent."""

from __future__ import annotations

import math

from seqmoe.predictor.training.checkpoint import Position
from seqmoe.predictor.training.options import TrainingOptions

_WARM_UP = 40
_LEAST_RATE = 0.02
# Teacher forcing ends when it has converged, and at this share of the budget anyhow; then replaced inputs ramp up.
TEACHER_SHARE = 0.6
_MOST_REPLACED = 0.5
_VALIDATIONS = 24
_TRAINING_PER_VALIDATION = 10


class Schedule:
    """The plan of a training with ``options`` that is ``at`` some position of it."""

    def __init__(self, options: TrainingOptions, at: Position) -> None:
        self.options, self.at = options, at
        self._validated = (0.0, 0.0)  # when the last validation ended, and how long it took

    def validated(self, took: float) -> None:
        """A validation is over; ``took`` in seconds."""
        self.at.validated_at, self.at.validated_epoch = self.spent(), self.at.epoch
        self._validated = (self.at.seconds + took, took)

    def spent(self) -> float:
        """Share of the budget, from 0 to 1 and a little more."""
        options = self.options
        shares = [0.0]
        if options.minutes is not None:
            shares.append(self.at.seconds / (60 * options.minutes))
        if options.tokens is not None:
            shares.append(self.at.tokens / options.tokens)
        return max(shares)

    def rate(self) -> float:
        """Share of the learning rate: warm-up, then a cosine over the budget."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(self.spent(), 1.0)))
        return min(1.0, (self.at.steps + 1) / _WARM_UP) * max(_LEAST_RATE, cosine)

    def replaced(self) -> float:
        """Share of the inputs that are the networks' own: a ramp over the first half of what is left of the budget."""
        begun = self.at.sampling_from
        if begun is None:
            return 0.0
        return _MOST_REPLACED * min(1.0, max(0.0, self.spent() - begun) / max(0.5 * (1 - begun), 1e-6))

    def validation_is_due(self) -> bool:
        """At the end of an epoch, or after a twelfth of the budget; a budget of time is not spent on validations."""
        since = self.spent() - self.at.validated_at
        ended, took = self._validated
        if self.options.tokens is None and self.at.seconds - ended < _TRAINING_PER_VALIDATION * took:
            return False
        return since >= 2 / _VALIDATIONS or (self.at.epoch > self.at.validated_epoch and since >= 1 / _VALIDATIONS)
