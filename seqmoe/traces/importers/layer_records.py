"""JSON lines, one record for each (token, layer), as routing loggers of many engines write them.

Keys: ``layer`` or ``layer_idx``; ``token_idx``, ``token`` or ``step``; ``topk_ids``, ``selected_ids`` or ``experts``;
optionally weights, a request id, and ``phase`` (prefill or decode). Whatever else a record has is ignored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, PREFILL, TraceSet
from seqmoe.traces import validate
from seqmoe.traces.importers.documents import documents, looks_like_json
from seqmoe.traces.importers.grid import LAYERS, Entry, Grid

FORMAT = "JSON lines with one record for each token and layer"
_LAYER = ("layer", "layer_idx")
_TOKEN = ("token_idx", "token", "step")
_EXPERTS = ("topk_ids", "selected_ids", "experts")
_WEIGHTS = ("topk_weights", "weights", "probs")
_REQUEST = ("request_id", "request", "req_id")
_PHASES = {"prefill": PREFILL, "decode": DECODE, PREFILL: PREFILL, DECODE: DECODE}


def recognises(head: bytes, path: Path) -> bool:
    """Whether the first line is a record of this kind, or the broken start of one."""
    if not looks_like_json(head):
        return False
    try:
        first = json.loads(head.strip().split(b"\n")[0])
    except ValueError:
        return False
    return isinstance(first, dict) and all(any(key in first for key in keys) for keys in (_LAYER, _TOKEN, _EXPERTS))


def read(path: Path) -> TraceSet:
    """Read the whole file; the number of experts is not told, so the largest id that occurs, plus one, is taken.

    Requests come in the order of their first record. A token that no record names and a layer that a token lacks are
    `MISSING`.
    """
    grids: dict[str, Grid] = {}
    top_k = 0
    for place, record in documents(path):
        where = f"{path}: {place}"
        if not isinstance(record, dict):
            raise InputError(f"{where}: expected an object, got {str(record)[:80]!r}")
        experts = validate.expert_ids(_value(record, _EXPERTS, where), f"{where}: {_key(record, _EXPERTS)}")
        top_k = top_k or len(experts)
        given = _key(record, _WEIGHTS)
        entry = Entry(
            token=validate.whole_number(_value(record, _TOKEN, where), f"{where}: {_key(record, _TOKEN)}"),
            layer=validate.whole_number(_value(record, _LAYER, where), f"{where}: {_key(record, _LAYER)}", LAYERS),
            experts=experts,
            weights=validate.router_weights(record[given], len(experts), f"{where}: {given}") if given else None,
            place=place,
            phase=_phase(record, where),
        )
        name = str(record.get(_key(record, _REQUEST), ""))
        grids.setdefault(name, Grid(str(path), f"request {name!r}" if name else "request")).add(entry)
    everything = [entry for grid in grids.values() for entry in grid.entries.values()]
    layers = 1 + max(entry.layer for entry in everything)
    count = max(1 + max(max(entry.experts) for entry in everything), top_k)
    requests = []
    for name, grid in grids.items():
        prompt = _prompt_length(list(grid.entries.values()))
        requests.append(grid.request(layers, top_k, count, "unknown", prompt_length=prompt, identifier=name))
    return TraceSet(path.stem, layers, count, top_k, tuple(requests), FORMAT)


def _prompt_length(entries: list[Entry]) -> int:
    """Tokens of the prompt where the records tell their phase, else 0."""
    prefill = [entry.token for entry in entries if entry.phase == PREFILL]
    if prefill:
        return max(prefill) + 1
    return min((entry.token for entry in entries if entry.phase == DECODE), default=0)


def _key(record: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((name for name in names if record.get(name) is not None), "")


def _value(record: dict[str, Any], names: tuple[str, ...], where: str) -> Any:
    key = _key(record, names)
    if not key:
        raise InputError(f"{where}: none of the keys {', '.join(names)}")
    return record[key]


def _phase(record: dict[str, Any], where: str) -> int | None:
    value = record.get("phase")
    if value is None:
        return None
    if isinstance(value, str | int) and value in _PHASES:
        return _PHASES[value]
    raise InputError(f"{where}: phase = {value!r}: expected prefill or decode")
