"""The worker protocol: JSON requests on stdin, JSON events on stdout, all else on stderr. Standard library only."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

from baselines._shared.memory import exhausted
from baselines._shared.numa import numa_policy

PROTOCOL = 1
# Token events wait at most this long for company, so that writing them does not compete with decoding.
_FLUSH_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1
# Loaded here, since nothing is to be loaded between fork and exec.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Refusal(Exception):
    """A request that cannot be served. ``kind``: unsupported, not_installed, oom, crash or invalid."""

    def __init__(self, kind: str, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.hint = hint


@dataclasses.dataclass(frozen=True)
class Request:
    """One request. ``prompts`` are token ids, ``device`` is cpu or cuda, ``cell`` the harness's cell as a table."""

    protocol: int
    cell: dict[str, Any]
    model_path: str
    prompts: list[list[int]]
    decode_tokens: int
    device: str
    threads: int
    model_format: str = "hf"
    warmup: bool = True
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def residency(self) -> float:
        """Share of all experts on the device."""
        return float(self.cell["residency"])

    @property
    def batch(self) -> int:
        """Prompts that are decoded at the same time."""
        return int(self.cell.get("batch", 1))

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with its output."""
        return max(len(prompt) for prompt in self.prompts) + self.decode_tokens

    def only_options(self, *known: str) -> None:
        """Refuse options that this system does not have."""
        for name in self.options:
            if name not in known:
                raise Refusal("invalid", f"option {name!r} is unknown here", f"valid: {', '.join(known) or 'none'}")


class Events:
    """Writes the events of one request; safe to call from several threads."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._flushed = time.monotonic()

    def ready(self) -> None:
        """The model is loaded."""
        self._write({"event": "ready"}, at_once=True)

    def request(self, prompt: int, time_ns: int) -> None:
        """Prompt number ``prompt`` was submitted at ``time_ns`` (time.perf_counter_ns)."""
        self._write({"event": "request", "prompt": prompt, "time_ns": time_ns})

    def token(self, prompt: int, token: int | None, time_ns: int) -> None:
        """A token arrived; ``token`` is None where the system hides its id."""
        self._write({"event": "token", "prompt": prompt, "token": token, "time_ns": time_ns})

    def stat(self, name: str, value: Any) -> None:
        """A figure that the system reports about itself."""
        self._write({"event": "stat", "name": name, "value": value})

    def missing(self, name: str, reason: str) -> None:
        """A figure that the system cannot tell, and why."""
        self._write({"event": "stat", "name": name, "missing": reason})

    def done(self) -> None:
        """The request ended well."""
        self._write({"event": "done"}, at_once=True)

    def error(self, refusal: Refusal) -> None:
        """The request ended without a result."""
        event = {"event": "error", "kind": refusal.kind, "reason": refusal.reason, "hint": refusal.hint}
        self._write(event, at_once=True)

    def _write(self, event: dict[str, Any], at_once: bool = False) -> None:
        with self._lock:
            self._waiting.append(json.dumps(event))
            now = time.monotonic()
            if at_once or now - self._flushed > _FLUSH_SECONDS:
                self._stream.write("\n".join(self._waiting) + "\n")
                self._stream.flush()
                self._waiting.clear()
                self._flushed = now


def parse_request(line: str) -> Request:
    """One line of stdin as a `Request`; whatever is wrong with it is a `Refusal` of kind invalid that names the key."""
    try:
        table = json.loads(line)
    except json.JSONDecodeError as error:
        raise Refusal("invalid", f"the request is not JSON: {error}") from None
    if not isinstance(table, dict):
        raise Refusal("invalid", "the request is not a JSON object")
    fields = {field.name: field for field in dataclasses.fields(Request)}
    if unknown := sorted(set(table) - set(fields)):
        raise Refusal("invalid", f"request: unknown key {unknown[0]!r}", f"valid: {', '.join(fields)}")
    if table.get("protocol") != PROTOCOL:
        raise Refusal("invalid", f"protocol = {table.get('protocol')!r}: this worker speaks {PROTOCOL}")
    optional = {"model_format", "warmup", "options"}
    if absent := [name for name in fields if name not in table and name not in optional]:
        raise Refusal("invalid", f"request: key {absent[0]!r} is missing")
    request = Request(**table)
    if not request.prompts or not all(request.prompts) or request.decode_tokens < 1 or request.threads < 1:
        raise Refusal("invalid", "request: prompts must not be empty, decode_tokens and threads at least 1")
    if request.device not in ("cpu", "cuda") or "residency" not in request.cell:
        raise Refusal("invalid", "request: device must be cpu or cuda, and the cell must have a residency")
    return request


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, however that ends. Linux only; elsewhere nothing."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def serve(handler: Callable[[Request, Events], None]) -> int:
    """Serve requests from stdin in order until it ends; returns the process's exit code.

    File descriptor 1 is moved away first: whatever a library prints goes to stderr, and stdout stays JSON. A handler
    that returns has succeeded, and threads and NUMA policy are added to what it told; a `Refusal` is reported as it is,
    an exhausted memory as oom, anything else as a crash. A sweep that is killed takes the worker along.
    """
    end_with_parent()
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        if not line.strip():
            continue
        events = Events(stream)
        try:
            request = parse_request(line)
            handler(request, events)
            events.stat("threads", request.threads)
            events.stat("numa", numa_policy())
            events.done()
        except Refusal as refusal:
            events.error(refusal)
        except MemoryError as error:
            events.error(Refusal("oom", f"host: {error or 'out of memory'}"))
        except Exception as error:
            traceback.print_exc()
            said = f"{type(error).__name__}: {error}"
            place = exhausted(said)
            events.error(Refusal("crash", said) if place is None else Refusal("oom", f"{place}: {said}"))
    return 0
