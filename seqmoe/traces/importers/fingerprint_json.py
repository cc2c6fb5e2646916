"""The JSON of GPT-OSS expert fingerprinting: one generated example with its text and its router data.

``router_data`` is a list of objects ``{"token_198": {"layer_0": {"selected_experts": [...], "selected_probs": [...]},
...}}``; beside it the example's ``dataset``, ``row_index`` and text. A file may hold one example or a list.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import TraceSet
from seqmoe.traces import validate
from seqmoe.traces.importers import fingerprint
from seqmoe.traces.importers.documents import documents, looks_like_json, mentions
from seqmoe.traces.importers.grid import LAYERS, Entry, Grid

FORMAT = "JSON of GPT-OSS expert fingerprinting (router_data)"


def recognises(head: bytes, path: Path) -> bool:
    """Whether the file is JSON that has router data."""
    return looks_like_json(head) and mentions(path, b'"router_data"')


def read(path: Path) -> TraceSet:
    """Read the whole file; every example becomes one request of decode tokens, its prompt's routing being missing."""
    examples = [(_grid(path, place, example), example) for place, example in documents(path)]
    everything = [entry for grid, _ in examples for entry in grid.entries.values()]
    layers = 1 + max(entry.layer for entry in everything)
    top_k = len(everything[0].experts)
    count = fingerprint.expert_count(layers, top_k, max(max(entry.experts) for entry in everything))
    requests = tuple(
        grid.request(
            layers, top_k, count, fingerprint.ROUTER,
            prompt_length=min(token for token, _ in grid.entries),
            dataset=str(example.get("dataset", "")),
            identifier=fingerprint.identifier(example),
        )
        for grid, example in examples
    )  # fmt: skip
    return TraceSet(
        fingerprint.MODEL, layers, count, top_k, requests, FORMAT, router=fingerprint.ROUTER,
        model_top_k=fingerprint.model_top_k(layers, top_k),
    )  # fmt: skip


def _grid(path: Path, place: str, example: Any) -> Grid:
    where = f"{path}: {place}" if place else str(path)
    tokens = example.get("router_data") if isinstance(example, dict) else None
    if not isinstance(tokens, list) or not tokens:
        raise InputError(f"{where}: router_data: expected a list of tokens that is not empty")
    grid = Grid(str(path), place or "example")
    for index, token in enumerate(tokens):
        inside = f"{place}, router_data[{index}]" if place else f"router_data[{index}]"
        if not isinstance(token, dict) or not token:
            raise InputError(f"{path}: {inside}: expected an object with one token")
        for key, layers in token.items():
            number = _number(key, "token", f"{path}: {inside}")
            if not isinstance(layers, dict) or not layers:
                raise InputError(f"{path}: {inside}.{key}: expected an object with layers")
            for name, chosen in layers.items():
                grid.add(_entry(number, name, chosen, str(path), f"{inside}.{key}.{name}"))
    return grid


def _entry(token: int, name: str, chosen: Any, path: str, place: str) -> Entry:
    where = f"{path}: {place}"
    layer = _number(name, "layer", where)
    if not isinstance(chosen, dict):
        raise InputError(f"{where}: expected an object with selected_experts and selected_probs")
    experts = validate.expert_ids(chosen.get("selected_experts"), f"{where}.selected_experts")
    weights = validate.router_weights(chosen.get("selected_probs"), len(experts), f"{where}.selected_probs")
    return Entry(token, layer, experts, weights, place)


def _number(key: str, kind: str, where: str) -> int:
    found = re.fullmatch(rf"{kind}_(\d+)", key)
    if not found:
        raise InputError(f"{where}: unknown key {key!r}; expected {kind}_ and a number")
    return validate.whole_number(int(found.group(1)), f"{where}: {kind}", LAYERS if kind == "layer" else None)
