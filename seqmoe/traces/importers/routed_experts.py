"""What vLLM returns under ``enable_return_routed_experts``: expert ids [tokens, layers, k] of a request, no weights.

A request's ``routed_experts`` has a row for every token that went through the model: the prompt's, then the generated
ones but the last. Older versions (0.21) give the prompt's rows apart, as ``prompt_routed_experts``, with -1 where a
cached prefix was not computed again. In JSON an array is nested lists or a base64 string of a ``.npy`` file; here may
stand a server's response (``choices``), a dumped ``RequestOutput`` (``outputs``), a flat record, a list of these, or
one of them in every line. In ``.npz`` every array is a request; in ``.npy`` there is one. A row of zeros is what the
engine's buffer held before: a dense layer, or padding; with k > 1 it is no routing, and is `MISSING` here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmoe.spec.errors import InputError
from seqmoe.spec.trace import DECODE, MISSING, PREFILL, RequestTrace, TraceSet
from seqmoe.traces import validate
from seqmoe.traces.importers.documents import documents, looks_like_json, mentions
from seqmoe.traces.importers.routed_arrays import HEAD, arrays_of, decoded, is_array

FORMAT = "vLLM's routed experts (JSON, .npy or .npz)"


@dataclass(frozen=True, slots=True)
class Returned:
    """One request as vLLM returned it; ``prompt`` and ``generated`` count tokens, None where it is not told."""

    place: str
    routed: NDArray[np.int16]
    prompt_routed: NDArray[np.int16] | None = None
    prompt: int | None = None
    generated: int | None = None
    start: int | None = None
    token_ids: tuple[int, ...] | None = None
    identifier: str = ""
    group: str = ""


def recognises(head: bytes, path: Path) -> bool:
    """Whether the file is a numpy array or archive, or JSON that has routed experts."""
    return is_array(head) or (looks_like_json(head) and mentions(path, b'routed_experts"'))


def read(path: Path) -> TraceSet:
    """Read the whole file; the number of experts is not told, so the largest id that occurs, plus one, is taken."""
    returned: list[Returned] = []
    model = path.stem
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    if is_array(head):
        returned = [
            Returned(f"array {name!r}" if name else "", values, identifier=name) for name, values in arrays_of(path)
        ]
    else:
        for place, record in documents(path):
            returned += _of_record(path, place, record)
            named = record.get("model")
            model = named if isinstance(named, str) and named else model
    if not returned:
        raise InputError(f"{path}: no request has routed experts; was the engine started with the option for them?")
    laid = [_laid_out(path, request) for request in returned]
    shape = laid[0].experts.shape[1:]
    for request, source in zip(laid, returned, strict=True):
        if request.experts.shape[1:] != shape:
            raise InputError(
                f"{path}: {source.place}: [layers, k] = {list(request.experts.shape[1:])}, but {list(shape)} before"
            )
    layers, top_k = shape
    count = max(1 + max(int(request.experts.max()) for request in laid), top_k)
    for request, source in zip(laid, returned, strict=True):
        where = f"{path}: {source.place}".rstrip(": ")
        validate.routing(request.experts, count, validate.at(where))
    return TraceSet(model, layers, count, top_k, tuple(laid), FORMAT)


def _of_record(path: Path, place: str, record: Any) -> list[Returned]:
    """The requests of one document: one for every choice that has routed experts."""
    if not isinstance(record, dict):
        raise InputError(f"{path}: {place}: expected an object, got {str(record)[:80]!r}")
    choices = record.get("choices", record.get("outputs", [record]))
    if not isinstance(choices, list):
        raise InputError(f"{path}: {place}: choices: expected a list")
    usage = record.get("usage") or {}
    ids = record.get("prompt_token_ids")
    name = str(record.get("request_id", record.get("id", "")) or "")
    found = []
    for index, choice in enumerate(choices):
        inside = f"{place}, choices[{index}]".lstrip(", ") if choice is not record else place
        if not isinstance(choice, dict):
            raise InputError(f"{path}: {inside}: expected an object")
        if choice.get("routed_experts") is None:
            continue
        where = f"{path}: {inside}".rstrip(": ")
        made = choice.get("token_ids")
        prompt_routed = record.get("prompt_routed_experts")
        found.append(
            Returned(
                inside,
                decoded(choice["routed_experts"], f"{where}: routed_experts"),
                decoded(prompt_routed, f"{where}: prompt_routed_experts") if prompt_routed is not None else None,
                prompt=len(ids) if ids else _count(usage.get("prompt_tokens"), f"{where}: usage.prompt_tokens"),
                generated=len(made) if made else _completion(usage, len(choices), where),
                start=_count(record.get("routed_experts_prompt_start"), f"{where}: routed_experts_prompt_start"),
                token_ids=(*ids, *made) if ids and made else None,
                identifier=f"{name}#{index}" if name and len(choices) > 1 else name,
                group=(name or place or path.stem) if len(choices) > 1 else "",
            )
        )
    return found


def _completion(usage: dict[str, Any], choices: int, where: str) -> int | None:
    """Generated tokens; a response with several choices tells only their sum."""
    return _count(usage.get("completion_tokens"), f"{where}: usage.completion_tokens") if choices == 1 else None


def _count(value: Any, where: str) -> int | None:
    return None if value is None else validate.whole_number(value, where)


def _laid_out(path: Path, returned: Returned) -> RequestTrace:
    """Rows in token order with their phases; unrecorded rows become `MISSING`."""
    where = f"{path}: {returned.place}".rstrip(": ")
    experts, prompt, start = returned.routed, returned.prompt, returned.start or 0
    if returned.prompt_routed is not None:
        if returned.prompt_routed.shape[1:] != experts.shape[1:]:
            raise InputError(f"{where}: the prompt's routing is of another shape than the generated tokens'")
        prompt = len(returned.prompt_routed) + start
        experts = np.concatenate([returned.prompt_routed, experts])
    if prompt is not None and returned.generated is not None:
        forwarded = prompt + max(returned.generated - 1, 0)
        if returned.start is None and returned.prompt_routed is None and 0 < forwarded - len(experts) <= prompt:
            start = forwarded - len(experts)  # the client asked for the routing behind a known prefix
        if not forwarded <= start + len(experts) <= prompt + returned.generated:
            raise InputError(
                f"{where}: {len(experts)} rows for {prompt} prompt and {returned.generated} generated tokens; "
                "is it truncated?"
            )
    if experts.shape[2] > 1:
        experts = np.where((experts == 0).all(-1, keepdims=True), np.int16(MISSING), experts)
    phase = np.full(len(experts), DECODE, dtype=np.uint8)
    phase[: max((prompt or 0) - start, 0)] = PREFILL
    ids = returned.token_ids
    return RequestTrace(
        experts,
        phase,
        token_ids=np.array(ids[start : start + len(experts)], dtype=np.int32) if ids else None,
        prompt_length=prompt or 0,
        first_position=start,
        identifier=returned.identifier,
        group=returned.group,
    )
