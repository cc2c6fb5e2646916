"""``route_trace v1``: CSV, one row per (token, layer, rank), as BigMoeOnEdge writes it.

Rows come layer by layer in prefill; they are put in token order here. An engine that needs only the last prompt token's
output skips the last layer of the others: those entries are `MISSING`. A decode token has all its layers.
"""

from __future__ import annotations

import csv
import re
from itertools import pairwise
from pathlib import Path

import numpy as np

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, MISSING, PREFILL, RequestTrace, TraceSet
from seqmoe.traces import validate
from seqmoe.traces.importers.grid import LAYERS

FORMAT = "route_trace v1 CSV"
_MARK = b"# route_trace v1"
# The kind of router by llama.cpp's name of the architecture, where all models of that name have the same.
_ROUTERS = {
    "gpt-oss": "softmax_renormalised",
    "granitemoe": "softmax_renormalised",
    "olmoe": "softmax",
    "qwen3moe": "softmax_renormalised",
}
_COLUMNS = ["turn", "phase", "step", "layer", "slot", "expert", "weight", "residency", "expert_bytes"]


def recognises(head: bytes, path: Path) -> bool:
    """Whether a file that starts so is of this format."""
    return head.startswith(_MARK)


def read(path: Path) -> TraceSet:
    """Read the whole file; every turn becomes one request."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: {error}") from None
    comments = [line for line in lines if line.startswith("#")]
    about = comments[1] if len(comments) > 1 else ""
    header = {name: int(value) for name, value in re.findall(r"(n_layer|n_expert|n_expert_used)=(\d+)", about)}
    if len(header) != 3:
        raise InputError(f"{path}: line 2: expected n_layer=, n_expert= and n_expert_used=")
    layers, experts, top_k = header["n_layer"], header["n_expert"], header["n_expert_used"]
    if layers > LAYERS or top_k > experts:
        raise InputError(f"{path}: line 2: n_layer={layers}, n_expert={experts}, n_expert_used={top_k}: not a geometry")
    first = len(comments)
    if first >= len(lines) or lines[first].split(",") != _COLUMNS:
        raise InputError(f"{path}: line {first + 1}: expected the columns {','.join(_COLUMNS)}")

    architecture = re.search(r"arch=(\S+)", about)
    router = _ROUTERS.get(architecture.group(1), "unknown") if architecture else "unknown"
    turns: dict[int, dict[int, _Token]] = {}
    for number, row in enumerate(csv.reader(lines[first + 1 :]), start=first + 2):
        where = f"{path}: line {number}"
        try:
            turn, phase, step, layer, rank, expert = (int(value) for value in row[:6])
            weight = float(row[6])
        except (ValueError, IndexError):
            raise InputError(
                f"{where}: expected {len(_COLUMNS)} numbers, got {','.join(row)!r}; is it truncated?"
            ) from None
        if not (len(row) == len(_COLUMNS) and 0 <= layer < layers and 0 <= rank < top_k and 0 <= expert < experts):
            raise InputError(
                f"{where}: layer {layer}, rank {rank}, expert {expert} exceed {layers}, {top_k}, {experts}"
            )
        if phase not in (PREFILL, DECODE):
            raise InputError(f"{where}: phase = {phase}: expected 0 (prefill) or 1 (decode)")
        if min(turn, step) < 0:
            raise InputError(f"{where}: turn = {turn}, step = {step}: both are counted from 0")
        token = turns.setdefault(turn, {}).setdefault(step, _Token(phase, layers, top_k))
        if phase != token.phase:
            raise InputError(f"{where}: step {step} is both prefill and decode")
        if token.experts[layer, rank] != MISSING:
            raise InputError(
                f"{where}: step {step}, layer {layer}, rank {rank} was already in line {token.lines[layer]}"
            )
        token.put(layer, rank, expert, weight, number)
    requests = tuple(_request(path, turn, steps, experts, router) for turn, steps in sorted(turns.items()))
    model = re.search(r"model=(\S+)", about)
    sizes = [int(size) for line in comments for size in re.findall(r"layer=\d+ expert_bytes=(\d+)", line)]
    return TraceSet(
        Path(model.group(1)).stem if model else path.stem, layers, experts, top_k, requests, FORMAT,
        expert_bytes=round(sum(sizes) / len(sizes)) if sizes else 0, router=router,
    )  # fmt: skip


class _Token:
    """One token's rows: experts and weights [layers, k], and the last line that told of each layer."""

    __slots__ = ("experts", "lines", "phase", "weights")

    def __init__(self, phase: int, layers: int, top_k: int) -> None:
        self.phase = phase
        self.experts = np.full((layers, top_k), MISSING, np.int16)
        self.weights = np.zeros((layers, top_k), np.float32)
        self.lines = np.zeros(layers, np.int64)

    def put(self, layer: int, rank: int, expert: int, weight: float, line: int) -> None:
        self.experts[layer, rank], self.weights[layer, rank], self.lines[layer] = expert, weight, line


def _request(path: Path, turn: int, steps: dict[int, _Token], count: int, router: str) -> RequestTrace:
    numbers = sorted(steps)
    for before, after in pairwise(numbers):
        if after != before + 1:
            raise InputError(f"{path}: turn {turn}: no rows for step {before + 1}, but for step {after}")
    tokens = [steps[number] for number in numbers]
    experts, weights = np.stack([token.experts for token in tokens]), np.stack([token.weights for token in tokens])
    lines = [token.lines for token in tokens]

    def where(step: int, layer: int) -> str:
        return f"{path}: line {lines[step][layer]}: turn {turn}, step {numbers[step]}, layer {layer}"

    validate.routing(experts, count, where)
    validate.weights(weights, experts, router, where, validate.TOLERANCE)
    _require_layers(f"{path}: turn {turn}", numbers, [token.phase for token in tokens], experts)
    phase = np.array([token.phase for token in tokens], dtype=np.uint8)
    prompt = numbers[0] + int((phase == PREFILL).sum())
    return RequestTrace(
        experts, phase, weights, prompt_length=prompt, first_position=numbers[0], identifier=f"turn-{turn}"
    )


def _require_layers(where: str, steps: list[int], phases: list[int], experts: np.ndarray) -> None:
    """Raise `InputError` for a decode token without one of its layers, and for a prefill token without a middle one."""
    absent = (experts == MISSING).all(-1)
    for step, phase, layers in zip(steps, phases, absent, strict=True):
        if phase == DECODE and layers.any():
            raise InputError(f"{where}, step {step}: layer {layers.argmax()} is missing; is the file truncated?")
        if (layers[:-1] & ~layers[1:]).any():
            raise InputError(
                f"{where}, step {step}: layer {layers.argmax()} is missing, but later ones are there; "
                "a prefill token may lack the last layers only"
            )
