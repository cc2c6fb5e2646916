"""Records: what was observed of one cell in one repeat, one JSON line each. Metrics are computed from them later."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from dataclasses import dataclass, field
from typing import Any

from seqmoe.spec.declared import build
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.suite import LANES, Cell

SCHEMA = 1
OK = "ok"
KINDS = (OK, "unsupported", "not_installed", "oom", "crash", "hang", "invalid")
# Lanes whose records hold one time stamp per emitted token.
_TIMED_LANES = ("measured", "emulated")


@dataclass(frozen=True, slots=True)
class Status:
    """How a run ended. ``reason`` says why it failed, ``hint`` what to do about it."""

    kind: str
    reason: str = ""
    hint: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind = {self.kind!r}; {nearest(self.kind, KINDS)}")
        if self.kind != OK and not self.reason:
            raise ValueError(f"kind = {self.kind!r}: a failure needs a reason")

    @property
    def ok(self) -> bool:
        """Whether the run gave a result."""
        return self.kind == OK

    def __str__(self) -> str:
        return self.kind if self.ok else f"{self.kind}({self.reason})"


@dataclass(frozen=True, slots=True)
class PromptObservation:
    """One prompt: when it was submitted, when each token was emitted, and which (None where the system hides it).

    Times are the worker's ``perf_counter_ns``: only their differences mean anything.
    """

    request_ns: int
    token_ns: tuple[int, ...]
    tokens: tuple[int | None, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.token_ns):
            raise ValueError(f"{len(self.tokens)} tokens with {len(self.token_ns)} time stamps")
        times = (self.request_ns, *self.token_ns)
        if any(later < earlier for earlier, later in itertools.pairwise(times)):
            raise ValueError("time stamps run backwards")
        if any(token is not None and not 0 <= token < 2**31 for token in self.tokens):
            raise ValueError("tokens: an id is not a 32-bit number")
        if not -(2**63) <= times[0] <= times[-1] < 2**63:
            raise ValueError("time stamps: not 64-bit numbers of nanoseconds")


@dataclass(frozen=True, slots=True)
class Observations:
    """Raw time stamps and tokens, and what the system says of itself: a value, or ``{"missing": reason}``."""

    prompts: tuple[PromptObservation, ...] = ()
    stats: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """One cell in one repeat; ``environment`` is its fingerprint, ``started`` UTC (ISO 8601), ``seconds`` wall time."""

    schema: int
    cell: Cell
    cell_key: str
    repeat: int
    status: Status
    observations: Observations
    environment: dict[str, Any]
    started: str
    seconds: float

    def __post_init__(self) -> None:
        if self.repeat < 0:
            raise ValueError(f"repeat = {self.repeat}: counted from 0")
        if not 0 <= self.seconds < math.inf:
            raise ValueError(f"seconds = {self.seconds}: must be a time")
        _check_cell(self.cell, self.cell_key)
        _check_environment(self.environment)
        if self.status.ok and self.cell.lane in _TIMED_LANES:
            fault = incomplete(self.cell, self.observations)
            if fault:
                raise ValueError(f"status is ok, but {fault}")


def _check_cell(cell: Cell, key: str) -> None:
    """Raise ``ValueError`` for a cell that no suite could have declared, or one that the key does not name."""
    if cell.lane not in LANES:
        raise ValueError(f"cell: lane = {cell.lane!r}; {nearest(cell.lane, LANES)}")
    if not (math.isfinite(cell.residency) and 0 < cell.residency <= 1):
        raise ValueError(f"cell: residency = {cell.residency}: must lie in (0, 1]")
    for name in ("batch", "prompts", "decode_tokens"):
        if getattr(cell, name) < 1:
            raise ValueError(f"cell: {name} = {getattr(cell, name)}: must be at least 1")
    if key != cell.key:
        raise ValueError(f"cell_key = {key!r}: the cell's own is {cell.key!r}; a record is never edited, remove it")


def _check_environment(environment: dict[str, Any]) -> None:
    """Raise ``ValueError`` for a load or weights that cannot be what a sweep has written; both may be absent."""
    load = environment.get("load_average", 0.0)
    if isinstance(load, bool) or not isinstance(load, (int, float)) or not math.isfinite(load):
        raise ValueError(f"environment: load_average = {load!r}: expected a number")
    weights = environment.get("weights", {})
    if not isinstance(weights, dict) or not all(isinstance(digest, (str, type(None))) for digest in weights.values()):
        raise ValueError(f"environment: weights = {weights!r}: expected a table of digests")


def incomplete(cell: Cell, observations: Observations) -> str:
    """What is missing for a result: every prompt, each with exactly ``decode_tokens`` tokens; empty if nothing is."""
    if len(observations.prompts) != cell.prompts:
        return f"{len(observations.prompts)} of {cell.prompts} prompts were answered"
    for index, prompt in enumerate(observations.prompts):
        if len(prompt.tokens) != cell.decode_tokens:
            return f"prompt {index} emitted {len(prompt.tokens)} tokens where {cell.decode_tokens} were asked for"
    return ""


def to_json(record: Record) -> str:
    """The record as one line without its newline; raises ``ValueError`` for a NaN or an infinity in it."""
    return json.dumps(dataclasses.asdict(record), allow_nan=False, separators=(",", ":"))


def from_json(line: str, where: str) -> Record:
    """Read one line; ``where`` (file and line number) prefixes the `InputError` of anything that is not a record."""
    table = table_of(line, where)
    require_schema(table, SCHEMA, where)
    return build(Record, table, where)


def table_of(line: str, where: str) -> dict[str, Any]:
    """The JSON object of one line of any kind of record, or `InputError`."""
    try:
        table = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not a JSON line ({error}); repair or remove it") from None
    if not isinstance(table, dict):
        raise InputError(f"{where}: expected a JSON object, got {line[:40]!r}")
    return table


def require_schema(table: dict[str, Any], known: int, where: str) -> None:
    """Raise `InputError` for a record of another schema than ``known``; a newer one asks for a newer version."""
    schema = table.get("schema")
    if isinstance(schema, int) and schema > known:
        raise InputError(f"{where}: schema = {schema}: this version reads up to {known}; upgrade seqmoe to read it")
    if schema != known:
        raise InputError(f"{where}: schema = {schema!r}: expected {known}")
