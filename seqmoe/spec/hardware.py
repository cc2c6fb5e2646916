"""Hardware profiles: what a host's GPU and link can do, each value with its source."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from seqmoe.spec.declared import build, declaration, read_toml
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.pace import Pace
from seqmoe.spec.paths import Home
from seqmoe.spec.rates import Rates

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class FullLoad:
    """Full-load decode speed of one model on this hardware, from which a layer's time follows."""

    decode_tok_s: float
    layers: int
    expert_bytes: int
    source: str

    def __post_init__(self) -> None:
        for key in ("decode_tok_s", "layers", "expert_bytes"):
            value = getattr(self, key)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{key} = {value}: must be positive and finite")

    @property
    def layer_seconds(self) -> float:
        """Seconds of one layer at full-load speed, batch 1."""
        return 1.0 / (self.decode_tok_s * self.layers)


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """One GPU and its host link. Rates in GB/s (1e9 bytes per second), memory in GiB.

    ``link_sustained`` is what large copies reach on an idle link, ``link_contended`` what is left beside other
    traffic, ``sources`` says where each value comes from. ``emulates`` names the model whose overlap ratio an emulated
    run takes: the paper's workload on this GPU; empty for a machine of which the paper has none. ``rates`` are for the
    simulator.
    """

    schema: int
    name: str
    title: str
    memory: float
    link_peak: float
    link_sustained: float
    sources: dict[str, str]
    emulates: str = ""
    rates: Rates | None = None
    link_contended: float | None = None
    full_load: dict[str, FullLoad] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema = {self.schema}: this version reads {SCHEMA}; upgrade seqmoe or the declaration")
        for key in ("memory", "link_peak"):
            value = getattr(self, key)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{key} = {value}: must be positive and finite")
        if not 0 < self.link_sustained <= self.link_peak:
            raise ValueError(f"link_sustained = {self.link_sustained}: must lie in (0, link_peak = {self.link_peak}]")
        if self.link_contended is not None and not 0 < self.link_contended <= self.link_sustained:
            raise ValueError(f"link_contended = {self.link_contended}: must lie in (0, link_sustained]")
        for key in ("memory", "link_peak", "link_sustained", *(("link_contended",) if self.link_contended else ())):
            if not self.sources.get(key):
                raise ValueError(f"sources: {key} has no source")
        if self.emulates and self.emulates not in self.full_load:
            hint = nearest(self.emulates, self.full_load) if self.full_load else "there is none at all"
            raise ValueError(f"emulates = {self.emulates!r}: has no full_load figure; {hint}")

    def pace(self, model: str) -> Pace:
        """The full-load layer time of a model, and its expert's time on the sustained link.

        The overlap ratio follows from them and is never an input.
        """
        if model not in self.full_load:
            hint = nearest(model, self.full_load)
            raise InputError(f"hardware {self.name!r} has no full-load figure for {model!r}; {hint}")
        load = self.full_load[model]
        return Pace(load.layer_seconds, load.expert_bytes / (self.link_sustained * 1e9))

    def overlap_ratio(self, model: str) -> float:
        """Experts that the link moves while one layer of a model computes at full-load speed."""
        return self.pace(model).overlap_ratio

    @property
    def emulated_pace(self) -> Pace:
        """What an emulated run on this profile imitates: the pace of ``emulates``."""
        if not self.emulates:
            raise InputError(
                f"suites/hardware/{self.name}.toml: declares no model in emulates, whose pace a run would imitate; "
                "give a profile that does, like rtx4090"
            )
        return self.pace(self.emulates)

    @property
    def emulated_overlap_ratio(self) -> float:
        """The overlap ratio that an emulated run on this profile takes: the one of ``emulates``."""
        return self.overlap_ratio(self.emulates)


def load_hardware(home: Home, name: str) -> HardwareProfile:
    """Read suites/hardware/<name>.toml; an unknown name is an `InputError` with the nearest."""
    path = declaration(home.suites / "hardware", name, "hardware profile")
    profile = build(HardwareProfile, read_toml(path), str(path))
    if profile.name != name:
        raise InputError(f"{path}: name = {profile.name!r}: must be {name!r}, like the file")
    return profile
