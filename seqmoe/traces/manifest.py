"""``trace_set.json``: what a store of traces says of itself."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from seqmoe.spec.declared import build
from seqmoe.spec.errors import InputError
from seqmoe.spec.files import replacing
from seqmoe.spec.trace import SCHEMA, RequestTrace, TraceSet

MANIFEST = "trace_set.json"


@dataclass(frozen=True, slots=True)
class Shard:
    """One Arrow file of whole requests; ``steps`` are tokens of both phases."""

    file: str
    requests: int
    steps: int

    def __post_init__(self) -> None:
        if min(self.requests, self.steps) < 0:
            raise ValueError(f"requests = {self.requests}, steps = {self.steps}: must not be negative")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The store's own description; ``complete`` only once its writer has finished.

    ``half`` tells that weights and logits are kept in half precision; ``digest`` is `seqmoe.traces.source.digest`.
    """

    schema: int
    model: str
    layers: int
    experts: int
    top_k: int
    model_top_k: int
    router: str
    licence: str
    source: str
    expert_bytes: int
    half: bool = False
    complete: bool = False
    digest: str = ""
    shards: tuple[Shard, ...] = ()

    @classmethod
    def of(cls, traces: TraceSet, half: bool) -> Manifest:
        """The description of a new, empty store for traces like these; their requests are not looked at."""
        names = ("model", "layers", "experts", "top_k", "model_top_k", "router", "licence", "source", "expert_bytes")
        return cls(SCHEMA, **{name: getattr(traces, name) for name in names}, half=half)

    @property
    def geometry(self) -> tuple[str | int, ...]:
        """What the digest covers beside the requests."""
        return self.model, self.layers, self.experts, self.top_k, self.router

    def differs(self, other: Manifest) -> str:
        """The first field in which two stores cannot be one, as ``name = here, there``; empty where none."""
        for name in ("model", "layers", "experts", "top_k", "model_top_k", "router", "half"):
            if getattr(self, name) != getattr(other, name):
                return f"{name} = {getattr(self, name)!r}, not {getattr(other, name)!r}"
        return ""

    def trace_set(self, requests: tuple[RequestTrace, ...] = ()) -> TraceSet:
        """The set without its requests, or with the given ones."""
        return TraceSet(
            self.model, self.layers, self.experts, self.top_k, requests, self.source, self.expert_bytes,
            self.model_top_k, self.router, self.licence,
        )  # fmt: skip


def read_manifest(folder: Path) -> Manifest:
    """Read and check a store's manifest, or raise `InputError`."""
    path = folder / MANIFEST
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: not a store of traces (no {MANIFEST}); `seqmoe trace import` makes one") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: not valid JSON: {error}; is it truncated?") from None
    schema = table.get("schema") if isinstance(table, dict) else None
    if not isinstance(schema, int) or schema < 1:
        raise InputError(f"{path}: schema = {schema!r}: expected a number from 1 to {SCHEMA}")
    if schema > SCHEMA:
        raise InputError(
            f"{path}: schema = {schema}, but this version of seqmoe reads up to {SCHEMA}; upgrade seqmoe to read it"
        )
    manifest = build(Manifest, table, str(path))
    try:
        manifest.trace_set()
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace a store's manifest, whole or not at all."""
    with replacing(folder / MANIFEST) as partial:
        partial.write_text(json.dumps(asdict(manifest), indent=1) + "\n", encoding="utf-8")
