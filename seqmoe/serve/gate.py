"""Who may come in, and with how much: in front of every route."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seqmoe.serve.errors import ApiError, no_key, too_large
from seqmoe.serve.limits import Limits

# Nothing in them is anybody's secret.
_OPEN = ("/health", "/")


class Gate:
    """Asks for the bearer token where there is one, and ends bodies that are too large or do not come.

    Without a token the server listens on a loopback address only; then the request must also have been meant for one,
    so that no page in a browser reaches it under a name that its owner lets point there.
    """

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None) -> None:
        self._app, self._limits = app, limits
        self._key = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope["path"], Headers(scope=scope))
        except ApiError as error:
            response = JSONResponse(error.body, error.status_code, error.headers)
            await response(scope, receive, send)
            return
        await self._app(scope, self._limited(receive), send)

    def _check(self, path: str, headers: Headers) -> None:
        if self._key is None:
            if not is_loopback(_name(headers.get("host", ""))):
                raise ApiError(403, "this server answers to loopback addresses only", code="forbidden_host")
        elif path not in _OPEN:
            given = headers.get("authorization", "").encode("utf-8", "replace")
            if not hmac.compare_digest(given, self._key):
                raise no_key()
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._limits.body_bytes:
            raise too_large(self._limits.body_bytes)

    def _limited(self, receive: Receive) -> Receive:
        size, whole = 0, False

        async def limited() -> Message:
            nonlocal size, whole
            if whole:  # what still comes is the end of the connection
                return await receive()
            try:
                async with asyncio.timeout(self._limits.silent_seconds):
                    message = await receive()
            except TimeoutError:
                text = f"the request's body did not come for {self._limits.silent_seconds:g} s"
                raise ApiError(408, text, code="request_timeout", headers={"Connection": "close"}) from None
            size += len(message.get("body", b""))
            if size > self._limits.body_bytes:
                raise too_large(self._limits.body_bytes)
            whole = not message.get("more_body", False)
            return message

        return limited


def is_loopback(host: str) -> bool:
    """Whether a host name or address can be this machine only."""
    if host in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """A Host header without its port: ``name:80``, ``127.0.0.1:80`` or ``[::1]:80``."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host
