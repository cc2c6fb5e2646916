"""The offline profile of a model, one small file: what systems want to know of it from other traces.

It is a popularity predictor's file (`seqmoe predictor train --kind popularity`), with, where they were fitted, the
weights of the learned retention score beside the frequencies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from seqmoe.predictor.base import Predictor, halves
from seqmoe.predictor.container import read_container, write_container
from seqmoe.predictor.popularity import KIND, frequency_of
from seqmoe.runtime.retention import Offline
from seqmoe.simulate.policies.learned import FEATURES
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.system import SystemSpec
from seqmoe.spec.trace import TraceSet

_FREQUENCY, _WEIGHTS = "frequency", "learned_score"


def make_profile(traces: TraceSet, predictor: Predictor | None = None) -> Offline:
    """Count ``traces``; with a predictor, also fit the learned score to its forecasts of them."""
    # Only making a profile needs the replay; every session reads one.
    from seqmoe.simulate.replay import fitted_weights

    return Offline(frequency_of(traces), fitted_weights(traces, predictor) if predictor is not None else None)


def write_profile(path: Path, profile: Offline, top_k: int, made_from: dict[str, Any] | None = None) -> None:
    """Write a profile as one file, whole or not at all; ``made_from`` is the record of its making."""
    assert profile.popularity is not None
    layers, experts = profile.popularity.shape
    tensors = {_FREQUENCY: profile.popularity.astype(np.float32)}
    if profile.weights is not None:
        tensors[_WEIGHTS] = profile.weights.astype(np.float32)
    about = {"geometry": {"layers": layers, "experts": experts, "top_k": top_k}, "ranges": halves(layers)}
    write_container(path, KIND, tensors, about | {"training": made_from or {}})


def read_profile(path: Path, geometry: Geometry) -> Offline:
    """Raises `InputError`, naming the file, where it is absent, no profile, or another model's."""
    about, tensors = read_container(path)
    if about["kind"] != KIND or _FREQUENCY not in tensors:
        raise InputError(f"{path}: a predictor of kind {about['kind']!r}; a profile is of kind {KIND!r}")
    popularity, weights = tensors[_FREQUENCY], tensors.get(_WEIGHTS)
    if popularity.shape != (geometry.layers, geometry.experts):
        made_for = " layers of ".join(map(str, popularity.shape))
        raise InputError(
            f"{path}: made for {made_for} experts, but the model has {geometry.layers} of {geometry.experts}"
        )
    if weights is not None and weights.shape != (len(FEATURES),):
        raise InputError(f"{path}: its learned score has {weights.size} weights, this version's {len(FEATURES)}")
    return Offline(popularity, weights)


def profile_for(spec: SystemSpec, path: Path | None, geometry: Geometry) -> Offline:
    """What a system reads of the profile at ``path``; nothing where it needs nothing.

    Raises `InputError` where it cannot do without what the profile lacks.
    """
    profile = Offline() if path is None else read_profile(path, geometry)
    make = "`seqmoe predictor train --kind popularity --score-with PREDICTOR` makes one; give it with --profile"
    if spec.retention == "popularity" and profile.popularity is None:
        raise InputError(f"system {spec.name!r} needs a profile of this model; {make}")
    if spec.needs_weights and profile.weights is None:
        raise InputError(f"system {spec.name!r} needs a profile with a fitted score; {make}")
    return profile
