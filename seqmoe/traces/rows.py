"""A request as one row of Arrow, and back: flat lists, read without a copy from the memory map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.trace import MISSING, RequestTrace
from seqmoe.traces.summary import request_digest

BRIEF = ("identifier", "group", "dataset", "digest", "steps", "prompt_length", "first_position")
COLUMNS = (*BRIEF, "phase", "experts", "weights", "logits", "token_ids", "early")
_BYTE_MISSING = 255


def features(experts: int, half: bool) -> Any:
    """The columns as `datasets.Features`; expert ids take a byte where they fit, 255 standing for `MISSING`."""
    from datasets import Features, List, Value

    ids, real = List(Value(expert_type(experts))), List(Value("float16" if half else "float32"))
    lists = {"phase": List(Value("uint8")), "experts": ids, "weights": real, "logits": real}
    lists |= {"token_ids": List(Value("int32")), "early": ids}
    kinds = ("string", "string", "string", "string", "int32", "int32", "int32")
    return Features({name: Value(kind) for name, kind in zip(BRIEF, kinds, strict=True)} | lists)


def expert_type(experts: int) -> str:
    """The integer that holds the expert ids on disk."""
    return "uint8" if experts <= _BYTE_MISSING else "int16"


def row_of(request: RequestTrace, experts: int, half: bool) -> dict[str, Any]:
    """The row of a request. Its digest is of what will be read back, so half precision is applied first."""
    if half:
        request = _halved(request)
    real = np.float16 if half else np.float32

    def flat(values: NDArray[Any] | None, kind: Any) -> NDArray[Any] | None:
        return None if values is None else np.ascontiguousarray(values).reshape(-1).astype(kind, copy=False)

    ids = np.dtype(expert_type(experts))
    return {
        "identifier": request.identifier,
        "group": request.group,
        "dataset": request.dataset,
        "digest": request_digest(request),
        "steps": len(request.experts),
        "prompt_length": request.prompt_length,
        "first_position": request.first_position,
        "phase": flat(request.phase, np.uint8),
        "experts": flat(request.experts, ids),
        "weights": flat(request.weights, real),
        "logits": flat(request.logits, real),
        "token_ids": flat(request.token_ids, np.int32),
        "early": flat(request.early, ids),
    }


def request_of(table: Any, layers: int, top_k: int) -> RequestTrace:
    """The request of an Arrow table of one row."""

    def values(name: str) -> NDArray[Any] | None:
        cell = table.column(name)[0]
        return None if not cell.is_valid else cell.values.to_numpy(zero_copy_only=False)

    def ids(name: str, width: int) -> NDArray[np.int16] | None:
        flat = values(name)
        if flat is None:
            return None
        wide = flat.astype(np.int16)
        if flat.dtype == np.uint8:
            wide[flat == _BYTE_MISSING] = MISSING
        return wide.reshape(steps, layers, width)

    def reals(name: str) -> NDArray[np.float32] | None:
        flat = values(name)
        return None if flat is None else flat.astype(np.float32, copy=False).reshape(steps, layers, top_k)

    steps = int(table.column("steps")[0].as_py())
    early = table.column("early")[0]
    phase, experts = values("phase"), ids("experts", top_k)
    if phase is None or experts is None:
        raise ValueError("a request without experts or phase")
    return RequestTrace(
        experts=experts,
        phase=phase,
        weights=reals("weights"),
        logits=reals("logits"),
        token_ids=values("token_ids"),
        early=ids("early", len(early) // max(steps * layers, 1)) if early.is_valid else None,
        prompt_length=int(table.column("prompt_length")[0].as_py()),
        first_position=int(table.column("first_position")[0].as_py()),
        dataset=table.column("dataset")[0].as_py(),
        identifier=table.column("identifier")[0].as_py(),
        group=table.column("group")[0].as_py(),
    )


def _halved(request: RequestTrace) -> RequestTrace:
    from dataclasses import replace

    changed = {
        name: values.astype(np.float16).astype(np.float32)
        for name in ("weights", "logits")
        if (values := getattr(request, name)) is not None
    }
    return replace(request, **changed)
