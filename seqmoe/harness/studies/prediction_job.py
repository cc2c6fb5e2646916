"""One cell of a prediction study: split the traces, fit the predictor, judge it on the test part, time it."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seqmoe.harness.studies.future_use import future_use
from seqmoe.harness.studies.predictors import TEST_SHARE
from seqmoe.harness.studies.shuffled import shuffled
from seqmoe.predictor.base import Predictor
from seqmoe.predictor.making import Validation, make_predictor
from seqmoe.predictor.psi import inputs_of
from seqmoe.spec.declared import build
from seqmoe.spec.errors import InputError
from seqmoe.spec.prediction import PredictionCell
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.source import load_traces
from seqmoe.traces.split import split

# Steps of the rollout after the next one: eight in all (paper, section 5).
LOOKAHEAD = 7
# Of the test part, every fourth step is judged: rollouts cost eight steps each, and sequences differ more than steps.
STRIDE = 4
# Of the training part: what tells when to stop, and where the learning curve is drawn; for every seed the same.
VALIDATION = Validation(share=0.06, seed=1)
_TIMED_STEPS = 200
_WARM_UP_STEPS = 20
_TELL_SECONDS = 1.0

Emit = Callable[[dict[str, Any]], None]


def compute(request: dict[str, Any], progress: Emit) -> dict[str, Any]:
    """The observations of a cell; see `seqmoe.harness.studies.record.PredictionRecord`."""
    from seqmoe.predictor.evaluation import evaluate

    cell = build(PredictionCell, request["cell"], "cell")
    progress({"stage": "reading the traces"})
    traces = load_traces(request["source"])
    # The same split for every seed: seeds differ in training, not in what is tested on.
    train, test = split(traces, TEST_SHARE)
    predictor, training = _fit(cell, train, Path(request["work"]), progress)
    keep = Path(request["keep"])
    keep.parent.mkdir(parents=True, exist_ok=True)
    predictor.save(keep, training)
    if not cell.options.ordered:
        test = shuffled(test, cell.seed)
    tell = at_intervals(progress)
    evaluation = evaluate(
        predictor,
        test,
        lookahead=LOOKAHEAD,
        stride=STRIDE,
        progress=lambda done, of: tell({"stage": f"evaluating, {done} of {of} sequences"}),
    )
    observations = {"evaluation": evaluation.as_dict(), "training": training}
    observations["traces"] = {"train": len(train.requests), "test": len(test.requests)}
    if (use := future_use(predictor, test, LOOKAHEAD)) is not None:
        observations["future_use"] = use
    progress({"stage": "timing"})
    observations["cost"] = _cost_or_why_not(predictor, test)
    observations["cost"] |= {"parameters": training.get("parameters"), "bytes": keep.stat().st_size}
    return observations


def cost(predictor: Predictor, traces: TraceSet) -> dict[str, Any]:
    """Microseconds per token on this thread, through the running protocol: the median over the steps of one request.

    ``one_step_us`` takes a step in and forecasts the next, for every range; ``rollout_us`` forecasts eight.
    """
    longest = max(traces.requests, key=lambda request: len(request.experts))
    steps = inputs_of(predictor, longest, traces)[: _TIMED_STEPS + _WARM_UP_STEPS]
    if not len(steps):
        raise InputError("no test sequence has any steps")
    found = {}
    for name, lookahead in (("one_step_us", 0), ("rollout_us", LOOKAHEAD)):
        predictor.reset()
        times = []
        for step in steps:
            begin = time.perf_counter_ns()
            for first, last in predictor.ranges:
                predictor.observe(step, first, last)
                predictor.forecast(first, last, lookahead)
            times.append(time.perf_counter_ns() - begin)
        found[name] = round(statistics.median(times[_WARM_UP_STEPS:] or times) / 1e3, 1)
    return found | {"steps": len(steps), "load_average": round(os.getloadavg()[0], 2)}


def _cost_or_why_not(predictor: Predictor, traces: TraceSet) -> dict[str, Any]:
    try:
        return cost(predictor, traces)
    except InputError as error:  # the early router needs the model's hidden state, not only what was observed
        return {"missing": str(error)}


def _fit(cell: PredictionCell, train: TraceSet, work: Path, progress: Emit) -> tuple[Predictor, dict[str, Any]]:
    if not cell.trained:
        progress({"stage": "counting"})
    tell = at_intervals(progress)
    return make_predictor(
        cell.predictor,
        train,
        minutes=cell.minutes,
        seed=cell.seed,
        options=asdict(cell.options),
        validation=VALIDATION,
        work=work,
        progress=lambda state: tell({"stage": "training"} | training_event(state)),
    )


def training_event(state: Any) -> dict[str, Any]:
    """How far a training is, as an event."""
    names = ("minutes", "epoch", "tokens", "loss", "recall", "phase")
    return {name: value for name in names if (value := getattr(state, name, None)) is not None}


def at_intervals(progress: Emit) -> Emit:
    """Pass on at most one event a second."""
    last = 0.0

    def tell(event: dict[str, Any]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _TELL_SECONDS:
            last = now
            progress(event)

    return tell
