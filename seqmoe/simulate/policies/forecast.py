"""Policies that keep what a predictor expects: the paper's CacheScore, and what closes its gaps.

All return float32 scores [steps, layers, experts]. A forecast at the end of step t has rows j = 0, 1, ... for steps
t + 1 + j; once a layer's own event has passed, row 0 is history and the rows after it are what is left.
"""

from __future__ import annotations

import numpy as np

from seqmoe.simulate.policies.base import Floats, Routing, Scores
from seqmoe.simulate.policies.history import as_step_began, decayed_frequency, last_use

# The paper's constants (section 7.1): lambda, and c, the steps of the rollout.
LAMBDA, HORIZON = 0.5, 8
# A step ahead, next uses count this much less in `forecast_tail`.
TAIL_DISCOUNT = 0.95


def cache_score(routing: Routing) -> Scores:
    """CacheScore as printed (section 7.1): the mean of rows 1 to 8, weighted by 0.5 ** (row - 1).

    Row 0, the next step, feeds only the prefetcher: an expert that is needed next and then no more has no credit.
    Scores change only when a range has been forecast.
    """
    score = _weighted(routing.forecasts().probability[:, 1:], LAMBDA, HORIZON)
    return Scores(used=as_step_began(score), forecast=score)


def cache_score_next(routing: Routing) -> Scores:
    """CacheScore that counts row 0 until the expert's layer has passed; then the rows after it move up."""
    foresight = routing.forecasts()
    return Scores(
        used=_weighted(foresight.before[:, 1:], LAMBDA, HORIZON),
        forecast=_weighted(foresight.probability, LAMBDA, HORIZON),
    )


def belady_f8(routing: Routing) -> Scores:
    """Belady-8 with forecasts in the oracle's place (the paper's Belady-F8, figure 3): the expected next use.

    Steps are taken as independent; what is not expected within the horizon counts as one step after it. The score is
    the expected position, so layers and times compare.
    """
    foresight = routing.forecasts()

    def expected(rows: Floats) -> Floats:
        unused = np.cumprod(1 - rows[:, :HORIZON], axis=1)
        steps: Floats = 1 + unused.sum(axis=1)
        return steps

    used, forecast = expected(foresight.before[:, 1:]), expected(foresight.probability)
    place = routing.positions[..., None] / routing.active.shape[1]
    return Scores(used=-(place + used), forecast=-(place + forecast))


def forecast_recency(routing: Routing) -> Scores:
    """`cache_score_next` in steps of a hundredth, and the least recently used among equals.

    So recency breaks ties, and rules alone where the forecast sees nothing up to its horizon.
    """
    score = cache_score_next(routing)
    recent = (last_use(routing) + 1) / (routing.positions.size + 1)
    return Scores(used=np.round(_present(score.used), 2) * 100 + recent,
                  forecast=np.round(_present(score.forecast), 2) * 100 + recent)  # fmt: skip


def use_head(routing: Routing) -> Scores:
    """The predictor's direct forecast of discounted future use, one value without a rollout.

    After its layer's event the next step's part is taken out: use = (1 - g) p + g rest.
    """
    foresight = routing.forecasts()
    if foresight.use is None:
        raise ValueError("this predictor has no direct forecast of future use")
    discount, use = foresight.discount, foresight.use
    rest = (as_step_began(use) - (1 - discount) * foresight.before[:, 0]) / discount
    return Scores(used=rest, forecast=use)


def forecast_tail(routing: Routing) -> Scores:
    """Expected discounted next use: forecasts up to the horizon, and the decayed frequency as the chance beyond it.

    E[g ** steps to the next use] with g = `TAIL_DISCOUNT`: what the forecast cannot see, frequency knows. The logarithm
    is moved by the time at which the next step runs the layer, so that all layers and times compare.
    """
    foresight = routing.forecasts()
    chance = np.clip(decayed_frequency(routing.active), 1e-3, 0.999)
    used = next_use_value(foresight.before[:, 1:], chance, TAIL_DISCOUNT)
    forecast = next_use_value(foresight.probability, chance, TAIL_DISCOUNT)
    return timeless(routing, used, forecast, TAIL_DISCOUNT)


def next_use_value(rows: Floats, chance: Floats, discount: float) -> Floats:
    """E[discount ** j], j the step of the next use: ``rows`` [steps, n, ...] for j < n, then ``chance`` each step."""
    unused = np.ones_like(chance)
    value = np.zeros_like(chance)
    for ahead in range(rows.shape[1]):
        value += discount**ahead * unused * rows[:, ahead]
        unused *= 1 - rows[:, ahead]
    value += discount ** rows.shape[1] * unused * chance / (1 - discount * (1 - chance))
    return value


def timeless(routing: Routing, used: Floats, forecast: Floats, discount: float) -> Scores:
    """Values that fade by ``discount`` a step, as scores that stay valid while time passes."""
    when = (1 + routing.positions[..., None] / routing.active.shape[1]) * np.log(discount)
    least = 1e-9
    return Scores(used=np.log(np.maximum(used, least)) + when, forecast=np.log(np.maximum(forecast, least)) + when)


def _weighted(rows: Floats, discount: float, steps: int) -> Floats:
    """Mean over the rows [steps, n, layers, experts], weighted by ``discount`` ** row; the first ``steps`` of them."""
    weights = (discount ** np.arange(min(steps, rows.shape[1]))).astype(np.float32)
    mean: Floats = np.tensordot(rows[:, : len(weights)], weights / weights.sum(), axes=(1, 0))
    return mean


def _present(values: Floats | None) -> Floats:
    assert values is not None
    return values
