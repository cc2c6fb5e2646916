"""One request on its way between the HTTP side and the thread that computes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from seqmoe.runtime.sampling import Sampling
from seqmoe.serve.errors import ApiError


@dataclass(frozen=True, slots=True)
class Piece:
    """More text, and the tokens that were computed by then."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer is complete: "stop" or "length", and the tokens that were computed for it."""

    reason: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Failed:
    """There will be no more of it."""

    error: ApiError


Event = Piece | Ended | Failed


@dataclass(slots=True, eq=False)
class Job:
    """A prompt, how to continue it, and where the answer goes; made on the event loop's thread.

    The answer is at most ``tokens`` long, so that a client who does not read it can leave no more than that unread.
    """

    prompt: list[int]
    tokens: int
    sampling: Sampling
    stops: tuple[str, ...]
    arrived: float = field(default_factory=time.perf_counter)
    cancelled: bool = False
    _events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def put(self, event: Event) -> None:
        """From any thread. Nobody is there to read it once the loop has been closed."""
        try:
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
        except RuntimeError:
            self.cancelled = True

    async def next(self) -> Event:
        """The next event."""
        return await self._events.get()
