"""Models as declared in suites/models: what they are, where their weights are, and their bytes, each with a source."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import seqmoe
from seqmoe.spec.declared import build, declaration, read_toml
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.paths import Home

SCHEMA = 1
_PACKAGE = "package:"
_SOURCED = ("layers", "experts", "top_k", "expert_bytes", "non_expert_bytes")


@dataclass(frozen=True, slots=True)
class Decoding:
    """What one decode step reads and computes besides routed experts, for the simulator.

    ``hidden`` and ``expert_width`` give an expert's three matrices. ``token_bytes`` are the non-expert bytes that a
    step reads: all but the embedding's rows. ``context_bytes`` is what attention reads for every token of context, over
    all layers, ``cache_bytes`` what is kept of it, 0 where that is the same. ``kernels`` are the operations that a
    layer dispatches, with experts by batched products and views not counted. ``predictor_bytes`` is the size of the
    paper's predictors for this model, 0 where it has none.
    """

    hidden: int
    expert_width: int
    token_bytes: int
    context_bytes: int
    kernels: int
    sources: dict[str, str]
    predictor_bytes: int = 0
    cache_bytes: int = 0

    def __post_init__(self) -> None:
        if min(self.hidden, self.expert_width, self.token_bytes, self.kernels) < 1 or self.context_bytes < 0:
            raise ValueError(
                "hidden, expert_width, token_bytes and kernels must be positive, context_bytes not negative"
            )
        for name in ("predictor_bytes", "cache_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} = {getattr(self, name)}: must not be negative")
            if getattr(self, name) and not self.sources.get(name):
                raise ValueError(f"sources: {name} has no source")
        for name in ("hidden", "expert_width", "token_bytes", "context_bytes", "kernels"):
            if not self.sources.get(name):
                raise ValueError(f"sources: {name} has no source")

    @property
    def cached_bytes(self) -> int:
        """Bytes that a cache keeps of every token of context, over all layers."""
        return self.cache_bytes or self.context_bytes

    @property
    def expert_weights(self) -> int:
        """Weights of one expert: gate, up and down projection."""
        return 3 * self.hidden * self.expert_width


@dataclass(frozen=True, slots=True)
class Model:
    """One model of a comparison. ``title`` is its name in the paper, ``family`` its Transformers ``model_type``.

    The weights are either ``hub_id`` (Hugging Face) or ``path``: a folder, ``package:`` in front of it for one inside
    the installed package. ``format`` is the storage of the experts (bf16, fp8, mxfp4), ``layers`` counts MoE layers,
    ``expert_bytes`` is one expert of one layer, ``sources`` says where each number comes from.
    ``decoding`` is for the simulator. ``configuration`` is in what its Transformers configuration differs from the
    defaults of the family's class.
    """

    schema: int
    name: str
    title: str
    licence: str
    family: str
    format: str
    layers: int
    experts: int
    top_k: int
    expert_bytes: int
    non_expert_bytes: int
    sources: dict[str, str]
    hub_id: str = ""
    path: str = ""
    decoding: Decoding | None = None
    configuration: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema = {self.schema}: this version reads {SCHEMA}; upgrade seqmoe or the declaration")
        if bool(self.hub_id) == bool(self.path):
            raise ValueError("give either hub_id (a Hugging Face repository) or path (a folder), not both or none")
        for key in _SOURCED:
            if not self.sources.get(key):
                raise ValueError(f"sources: {key} has no source")
        if self.configuration and not self.sources.get("configuration"):
            raise ValueError("sources: configuration has no source")
        if min(self.expert_bytes, self.non_expert_bytes) < 1:
            raise ValueError("expert_bytes and non_expert_bytes must be positive")
        _ = self.geometry

    @property
    def geometry(self) -> Geometry:
        """The shape that slots and residency are counted in."""
        return Geometry(self.layers, self.experts, self.top_k, self.expert_bytes, self.non_expert_bytes)

    def shortened(self, layers: int) -> Model:
        """The model cut down to its first ``layers`` layers, 0 for all; ``ValueError`` for more than it has."""
        if not 0 <= layers <= self.layers:
            raise ValueError(f"layers = {layers}: {self.name} has {self.layers}; give 1 to {self.layers}")
        return replace(self, layers=layers or self.layers)

    @property
    def location(self) -> str:
        """What a loader is given: the hub id, or the folder as an absolute path where it is one of the package."""
        if self.path.startswith(_PACKAGE):
            return str(Path(seqmoe.__file__).parent / self.path.removeprefix(_PACKAGE))
        return self.path or self.hub_id


def load_model(home: Home, name: str) -> Model:
    """Read suites/models/<name>.toml; an unknown name is an `InputError` with the nearest."""
    path = declaration(home.suites / "models", name, "model")
    model = build(Model, read_toml(path), str(path))
    if model.name != name:
        raise InputError(f"{path}: name = {model.name!r}: must be {name!r}, like the file")
    return model
