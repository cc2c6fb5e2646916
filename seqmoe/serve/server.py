"""The HTTP side of it: a socket, connections that must not linger, and an end without lost answers."""

from __future__ import annotations

import asyncio
import socket
from types import FrameType

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from seqmoe.serve.gate import is_loopback
from seqmoe.serve.limits import Limits
from seqmoe.serve.scheduler import Scheduler
from seqmoe.spec.errors import InputError


def listening_socket(host: str, port: int, token: str | None) -> socket.socket:
    """A socket bound to the address, before anything is loaded.

    `InputError` for an address that cannot be had, and for one that others can reach where there is no ``token``.
    """
    if token is None and not is_loopback(host):
        raise InputError(
            f"--host {host}: others can reach this address; give a secret with --token-file or SEQMOE_TOKEN"
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (OSError, OverflowError) as error:
        raise InputError(f"--host {host} --port {port}: {error}; choose another address or port") from None
    return bound


def connections(silent_seconds: float) -> type[H11Protocol]:
    """A protocol that disconnects whom nothing is heard from: no request, or no reading of what is due."""

    class Connection(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._timer = self.loop.call_later(silent_seconds, self._no_request)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stop_timer()
            self._timer = self.loop.call_later(silent_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def _no_request(self) -> None:
            if self.cycle is None:
                self.transport.abort()

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()

    return Connection


class Server(uvicorn.Server):
    """Ends on SIGTERM or SIGINT once the batch is done, meanwhile refusing what comes.

    A second signal gives up the batch (``forced``), a third one does not even wait for clients to be told.
    """

    def __init__(self, app: ASGIApp, scheduler: Scheduler, limits: Limits) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=connections(limits.silent_seconds),
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=int(limits.silent_seconds),
                timeout_graceful_shutdown=int(limits.silent_seconds),
            )
        )
        self._scheduler = scheduler
        self._asked = False
        self.forced = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal; what it asks for is done by the next tick."""
        self.force_exit, self.forced, self._asked = self.forced, self._asked, True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if self.forced:
            self._scheduler.abort()
        elif self._asked and not self._scheduler.draining:
            self._scheduler.drain()
        if (self._asked and self._scheduler.idle) or self.force_exit or self._scheduler.broken is not None:
            self.should_exit = True
        return await super().on_tick(counter)
