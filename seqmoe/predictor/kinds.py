"""The kinds of predictors by name, and how each comes back from its file.

Each kind is a module with ``restore(about, tensors) -> Predictor``, which builds the predictor that a file describes
(see `seqmoe.predictor.container`); the kinds that only count also have ``fit(traces) -> Predictor``. They are imported
when they are needed, since the trained ones bring torch with them.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from seqmoe.predictor.base import Predictor
from seqmoe.predictor.container import read_container
from seqmoe.predictor.with_hashed import WithHashed, split_description
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.prediction import PREDICTORS as KINDS
from seqmoe.spec.prediction import TRAINED

__all__ = ["KINDS", "TRAINED", "check_kind", "load_predictor"]


def load_predictor(path: str | Path) -> Predictor:
    """The predictor of a file, whatever its kind.

    Raises `InputError`, which names the file, where it is absent, cut, foreign, or of a kind that this version lacks.
    """
    path = Path(path)
    about, tensors = read_container(path)
    kind = about["kind"]
    if kind not in KINDS:
        raise InputError(f"{path}: a predictor of kind {kind!r}, which this version does not know: update seqmoe")
    try:
        inner, tensors, table = split_description(about, tensors)
        predictor: Predictor = import_module(f"seqmoe.predictor.{kind}").restore(inner, tensors)
        if table is not None:
            predictor = WithHashed(predictor, table)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a whole predictor of kind {kind!r}: {error!r}") from None
    geometry = about["geometry"]
    if (predictor.layers, predictor.experts) != (geometry["layers"], geometry["experts"]):
        raise InputError(f"{path}: its tensors do not fit the geometry that it names, {geometry}")
    return predictor


def check_kind(kind: str) -> str:
    """The kind itself; an unknown one is an `InputError` with the nearest."""
    if kind not in KINDS:
        raise InputError(f"--kind {kind!r} is unknown; {nearest(kind, KINDS)}")
    return kind
