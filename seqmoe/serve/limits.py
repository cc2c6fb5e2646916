"""How much a server takes on."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Limits:
    """``batch`` requests decode together, ``queue`` more may wait; ``context`` tokens each, the answer among them.

    A body has up to ``body_bytes``; a request lasts up to ``request_seconds`` from its arrival to its last token; a
    client that sends or reads nothing of what is due for ``silent_seconds`` is disconnected.
    """

    batch: int = 8
    queue: int = 64
    context: int = 0
    body_bytes: int = 4 * 2**20
    request_seconds: float = 600.0
    silent_seconds: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name in ("queue", "context") else 1
            if not getattr(self, field.name) >= least:
                raise ValueError(f"{field.name} = {getattr(self, field.name)}: must be at least {least}")
