"""From a worker's events to observations and a status; whatever does not follow the protocol is named."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from seqmoe.harness.record import OK, Observations, PromptObservation, Status, incomplete
from seqmoe.spec.suite import Cell

_KEYS = {
    "ready": ((), ()),
    "request": (("prompt", "time_ns"), ()),
    "token": (("prompt", "token", "time_ns"), ()),
    "stat": (("name",), ("value", "missing")),
    "done": ((), ()),
    "error": (("kind", "reason"), ("hint",)),
}
_ERROR_KINDS = ("unsupported", "not_installed", "oom", "crash", "invalid")


class ProtocolError(Exception):
    """An event that the worker protocol does not have."""


class Observer:
    """Collects the events of one request."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._requests: dict[int, int] = {}
        self._times: dict[int, list[int]] = {}
        self._tokens: dict[int, list[int | None]] = {}
        self._stats: dict[str, Any] = {}
        self._status = Status("crash", "the request has not ended")

    def add(self, event: Mapping[str, Any]) -> None:
        """Take one event; raises `ProtocolError` for one that is not of the protocol."""
        kind = event["event"]
        if kind not in _KEYS:
            raise ProtocolError(f"unknown event {kind!r}")
        needed, optional = _KEYS[kind]
        given = event.keys() - {"event"}
        if not set(needed) <= given or not given <= {*needed, *optional}:
            raise ProtocolError(f"event {kind!r} has keys {sorted(given)}; expected {[*needed, *optional]}")
        if kind in ("request", "token"):
            self._add_timed(kind, event)
        elif kind == "stat":
            self._add_stat(event)
        elif kind == "error":
            self._add_error(event)
        elif kind == "done":
            self._status = Status(OK)

    def result(self) -> tuple[Status, Observations]:
        """Status and observations. A result that is not whole is ``invalid``; of a failure the statistics are kept."""
        status = self._status
        try:
            observations = self._observations()
        except ValueError as error:
            return Status("invalid", str(error)), Observations(stats=self._stats)
        fault = incomplete(self._cell, observations) if status.ok else ""
        if fault:
            status = Status("invalid", fault)
        return status, observations

    def _observations(self) -> Observations:
        prompts = []
        for index in sorted(self._requests):
            times, tokens = tuple(self._times.get(index, ())), tuple(self._tokens.get(index, ()))
            try:
                prompts.append(PromptObservation(self._requests[index], times, tokens))
            except ValueError as error:
                raise ValueError(f"prompt {index}: {error}") from None
        return Observations(tuple(prompts), self._stats)

    def _add_timed(self, kind: str, event: Mapping[str, Any]) -> None:
        prompt, time_ns = event["prompt"], event["time_ns"]
        if type(prompt) is not int or not 0 <= prompt < self._cell.prompts or type(time_ns) is not int:
            raise ProtocolError(f"event {kind!r}: prompt = {prompt!r}, time_ns = {time_ns!r}")
        if kind == "request":
            if prompt in self._requests:
                raise ProtocolError(f"prompt {prompt} was submitted twice")
            self._requests[prompt] = time_ns
            return
        if prompt not in self._requests:
            raise ProtocolError(f"a token of prompt {prompt} came before its request")
        token = event["token"]
        if token is not None and (type(token) is not int or not 0 <= token < 2**31):
            raise ProtocolError(f"token = {token!r}: expected an id or null")
        self._times.setdefault(prompt, []).append(time_ns)
        self._tokens.setdefault(prompt, []).append(token)

    def _add_stat(self, event: Mapping[str, Any]) -> None:
        if ("value" in event) == ("missing" in event):
            raise ProtocolError(f"stat {event['name']!r} needs either a value or the reason why it is missing")
        try:
            json.dumps(event.get("value"), allow_nan=False)
        except ValueError:
            raise ProtocolError(f"stat {event['name']!r} = {event['value']!r}: not a finite number") from None
        missing = {"missing": str(event["missing"])} if "missing" in event else None
        self._stats[str(event["name"])] = missing or event["value"]

    def _add_error(self, event: Mapping[str, Any]) -> None:
        if event["kind"] not in _ERROR_KINDS:
            raise ProtocolError(f"error kind {event['kind']!r}; expected one of {', '.join(_ERROR_KINDS)}")
        reason = without_paths(str(event["reason"])) or "no reason was given"
        self._status = Status(event["kind"], reason, without_paths(str(event.get("hint", ""))))


def crash(reason: str, tail: str) -> Status:
    """The status of a worker that ended early; an exhausted memory is told from other crashes by its last words."""
    last = without_paths(tail)[-1000:]
    text = f"{reason}; it said: {last}" if last else f"{reason}; it said nothing"
    if re.search(r"cudaHostAlloc|cudaHostRegister|pin(?:ned)?[ _]memory", tail) and "out of memory" in tail:
        return Status("oom", f"host_pinned: {text}")
    if re.search(r"CUDA (?:error: )?out of memory|CUDA_ERROR_OUT_OF_MEMORY|torch.OutOfMemoryError", tail):
        return Status("oom", f"device: {text}")
    if re.search(r"MemoryError|bad_alloc|Cannot allocate memory|can't allocate memory", tail):
        return Status("oom", f"host: {text}")
    hint = "SIGKILL from outside is usually the kernel, out of memory: see dmesg" if "SIGKILL" in reason else ""
    return Status("crash", text, hint)


def without_paths(text: str) -> str:
    """The text with the folders of absolute paths left out: records are published, and folders name people."""
    return re.sub(r"(?<![\w.:/])~?/(?:[^\s/:'\",()<>]+/)+(?=[^\s/])", ".../", text)
