"""From a predictor file to the predictor that a system asks for."""

from __future__ import annotations

from pathlib import Path

from seqmoe.predictor.base import Predictor
from seqmoe.predictor.early_router import OFFLINE, EarlyRouter
from seqmoe.predictor.kinds import load_predictor
from seqmoe.spec.errors import InputError
from seqmoe.spec.system import SystemSpec


def predictor_for(spec: SystemSpec, path: str | Path | None) -> Predictor | None:
    """The predictor of a system, read from ``path``; None for a system without one.

    Raises `InputError` where the system needs one and no file is given, or the file's predictor is for evaluations.
    """
    if spec.predictor == "none":
        return None
    if path is None:
        raise InputError(
            f"system {spec.name!r} needs a predictor for this model, and none lies with it; train one "
            "(`seqmoe predictor train`) and give it as --predictor, or for a suite put it at "
            ".predictors/MODEL/mamba2.safetensors"
        )
    predictor = load_predictor(path)
    if isinstance(predictor, EarlyRouter):
        raise InputError(f"{path}: {OFFLINE}; give a predictor of another kind")
    if not getattr(predictor, "psi", True):
        raise InputError(f"{path}: was trained with Psi off, but a running system gives it Psi; it is for evaluations")
    return predictor
