"""Models as declared in suites/models: what they are, where their weights are, and their bytes, each with a source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import seqmoe
from seqmoe.spec.declared import build, declaration, read_toml
from seqmoe.spec.errors import InputError
from seqmoe.spec.geometry import Geometry
from seqmoe.spec.paths import Home

SCHEMA = 1
_PACKAGE = "package:"
_SOURCED = ("layers", "experts", "top_k", "expert_bytes", "non_expert_bytes")


@dataclass(frozen=True, slots=True)
class Model:
    """One model of a comparison. ``title`` is its name in the paper, ``family`` its Transformers ``model_type``.

    The weights are either ``hub_id`` (Hugging Face) or ``path``: a folder, ``package:`` in front of it for one inside
    the installed package. ``format`` is the storage of the experts (bf16, fp8, mxfp4), ``layers`` counts MoE layers,
    ``expert_bytes`` is one expert of one layer, ``sources`` says where each number comes from.
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

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema = {self.schema}: this version reads {SCHEMA}; upgrade seqmoe or the declaration")
        if bool(self.hub_id) == bool(self.path):
            raise ValueError("give either hub_id (a Hugging Face repository) or path (a folder), not both or none")
        for key in _SOURCED:
            if not self.sources.get(key):
                raise ValueError(f"sources: {key} has no source")
        if min(self.expert_bytes, self.non_expert_bytes) < 1:
            raise ValueError("expert_bytes and non_expert_bytes must be positive")
        _ = self.geometry

    @property
    def geometry(self) -> Geometry:
        """The shape that slots and residency are counted in."""
        return Geometry(self.layers, self.experts, self.top_k, self.expert_bytes, self.non_expert_bytes)

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
