"""``route_trace v1``: CSV, one row per (token, layer, rank), as BigMoeOnEdge writes it.

Rows come layer by layer in prefill; they are put in token order here. An engine that needs only the last prompt token's
output skips the last layer of the others: those entries are `MISSING`. A decode token has all its layers.
"""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

import numpy as np

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, MISSING, PREFILL, RequestTrace, TraceSet

FORMAT = "route_trace v1 CSV"
_MARK = b"# route_trace v1"
_COLUMNS = ["turn", "phase", "step", "layer", "slot", "expert", "weight", "residency", "expert_bytes"]


def recognises(head: bytes) -> bool:
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
    first = len(comments)
    if first >= len(lines) or lines[first].split(",") != _COLUMNS:
        raise InputError(f"{path}: line {first + 1}: expected the columns {','.join(_COLUMNS)}")

    turns: dict[int, dict[int, tuple[int, np.ndarray, np.ndarray]]] = {}
    for number, row in enumerate(csv.reader(lines[first + 1 :]), start=first + 2):
        where = f"{path}: line {number}"
        try:
            turn, phase, step, layer, rank, expert = (int(value) for value in row[:6])
            weight = float(row[6])
        except (ValueError, IndexError):
            raise InputError(
                f"{where}: expected {len(_COLUMNS)} numbers, got {','.join(row)!r}; is it truncated?"
            ) from None
        if not (len(row) == len(_COLUMNS) and 0 <= layer < layers and 0 <= expert < experts and 0 <= rank < top_k):
            raise InputError(
                f"{where}: layer {layer}, rank {rank}, expert {expert} exceed {layers}, {top_k}, {experts}"
            )
        if phase not in (PREFILL, DECODE):
            raise InputError(f"{where}: phase = {phase}: expected 0 (prefill) or 1 (decode)")
        if min(turn, step) < 0:
            raise InputError(f"{where}: turn = {turn}, step = {step}: both are counted from 0")
        if not math.isfinite(weight):
            raise InputError(f"{where}: weight = {weight}: expected a finite number")
        token = turns.setdefault(turn, {}).get(step)
        if token is None:
            token = (phase, np.full((layers, top_k), MISSING, np.int16), np.zeros((layers, top_k), np.float32))
            turns[turn][step] = token
        if phase != token[0]:
            raise InputError(f"{where}: step {step} is both prefill and decode")
        if expert in token[1][layer]:
            raise InputError(f"{where}: expert {expert} appears twice for one token and layer")
        token[1][layer, rank] = expert
        token[2][layer, rank] = weight
    requests = tuple(_request(path, turn, steps) for turn, steps in sorted(turns.items()))
    model = re.search(r"model=(\S+)", about)
    sizes = [int(size) for line in comments for size in re.findall(r"layer=\d+ expert_bytes=(\d+)", line)]
    name = Path(model.group(1)).stem if model else path.stem
    return TraceSet(name, layers, experts, top_k, requests, FORMAT, round(sum(sizes) / len(sizes)) if sizes else 0)


def _request(path: Path, turn: int, steps: dict[int, tuple[int, np.ndarray, np.ndarray]]) -> RequestTrace:
    ordered = [steps[step] for step in sorted(steps)]
    experts = np.stack([token[1] for token in ordered])
    partial = (experts == MISSING).any(-1) & ~(experts == MISSING).all(-1)
    if partial.any():
        step, layer = np.argwhere(partial)[0]
        raise InputError(
            f"{path}: turn {turn}, step {sorted(steps)[step]}, layer {layer}: fewer experts than elsewhere"
        )
    _require_layers(f"{path}: turn {turn}", sorted(steps), [token[0] for token in ordered], experts)
    phase = np.array([token[0] for token in ordered], dtype=np.uint8)
    return RequestTrace(experts, phase, np.stack([token[2] for token in ordered]))


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
