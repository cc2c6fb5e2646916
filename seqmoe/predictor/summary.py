"""A predictor file on a set of traces: the evaluation, and its figures in the shape that people and scripts read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from seqmoe.predictor.calibration import ece
from seqmoe.predictor.container import read_container
from seqmoe.predictor.evaluation import evaluate
from seqmoe.predictor.kinds import load_predictor
from seqmoe.predictor.scores import OFFSETS, Evaluation, Missing, Which, interval, recall, recall_on_misses
from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import TraceSet
from seqmoe.traces.source import digest


@dataclass(frozen=True, slots=True)
class Summary:
    """An evaluation, of what on what; ``seen_in_training`` if the traces are those that the predictor was made from."""

    kind: str
    model: str
    evaluation: Evaluation
    seen_in_training: bool

    def as_dict(self) -> dict[str, Any]:
        """Figures by m, from "k" to "k+4"; one that cannot be told is None, and ``missing`` says why."""
        missing: dict[str, str] = {}
        counted = self.evaluation

        def by_m(name: str, figure: Callable[[int], Any]) -> dict[str, Any]:
            values = [figure(offset) for offset in range(OFFSETS)]
            if isinstance(values[0], Missing):  # it depends on the sequences, not on m
                missing[name] = values[0].reason
            return {
                f"k+{offset}" if offset else "k": None if isinstance(value, Missing) else value
                for offset, value in enumerate(values)
            }

        result: dict[str, Any] = {"kind": self.kind, "model": self.model, "top_k": counted.top_k}
        which: dict[str, Which] = {"recall": "seq1", "seq8": "seq8", "long": "long"}
        for name, place in which.items():
            result[name] = by_m(name, partial(recall, counted, which=place))
        result["interval"] = by_m("recall", partial(interval, counted))
        result["seq8_interval"] = by_m("seq8", partial(interval, counted, which="seq8"))
        result["recall_on_misses"] = {
            name: by_m(f"recall_on_misses {name}", partial(recall_on_misses, counted, float(name)))
            for name in counted.misses
        }
        error = ece(counted.calibration)
        return result | {
            "ece": None if math.isnan(error) else error,
            "sequences": len(counted.sequences),
            "tokens": sum(score.length for score in counted.sequences),
            "stride": counted.stride,
            "seen_in_training": self.seen_in_training,
            "missing": missing,
        }


def evaluate_file(
    path: Path, traces: TraceSet, stride: int = 1, progress: Callable[[int, int], None] | None = None
) -> Summary:
    """Evaluate a predictor file; `InputError` where it cannot be read or was made for another geometry."""
    about, _ = read_container(path)
    top_k = about["geometry"]["top_k"]
    if top_k != traces.top_k:
        raise InputError(f"{path}: was made for the top {top_k}, but in the traces a token has {traces.top_k} experts")
    evaluation = evaluate(load_predictor(path), traces, stride=stride, progress=progress)
    return Summary(about["kind"], traces.model, evaluation, about["training"].get("traces") == digest(traces))
