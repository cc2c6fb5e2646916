"""A forecast and what the request has shown so far, in fixed shares."""

from __future__ import annotations

from seqmoe.simulate.policies.base import Routing, Scores
from seqmoe.simulate.policies.history import frequency

# Shares of the forecast before the expert's layer has run, and after it.
BEFORE, AFTER = 0.6, 0.3


def mix(routing: Routing) -> Scores:
    """Forecast and running frequency, 0.6 to 0.4 before the expert's layer runs, 0.3 to 0.7 after it.

    One step ahead only: row 0 before the layer, row 1, which is the next step by then, after it.
    """
    foresight = routing.forecasts()
    often = frequency(routing.active)
    rows = foresight.before
    later = rows[:, min(1, rows.shape[1] - 1)]
    return Scores(
        used=AFTER * later + (1 - AFTER) * often,
        forecast=BEFORE * foresight.probability[:, 0] + (1 - BEFORE) * often,
    )
