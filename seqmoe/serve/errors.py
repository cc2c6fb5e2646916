"""Refusals as OpenAI's API words them: ``{"error": {message, type, param, code}}``."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException


class ApiError(HTTPException):
    """A request that is refused, or fails: HTTP status, and what the body says of it."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.kind, self.param, self.code = kind, param, code

    @property
    def body(self) -> dict[str, Any]:
        """What the client reads."""
        return {"error": {"message": self.detail, "type": self.kind, "param": self.param, "code": self.code}}


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Something in the request is wrong."""
    return ApiError(400, message, param=param, code=code)


def no_json(reason: str) -> ApiError:
    """The body cannot be parsed."""
    return invalid(f"the body is not valid JSON: {reason}", code="invalid_json")


def too_large(limit: int) -> ApiError:
    """The body exceeds the limit; the connection ends, since the rest of it is not read."""
    return ApiError(413, f"the request's body exceeds {limit} bytes", code="request_too_large", headers=_CLOSE)


def no_key() -> ApiError:
    """The bearer token is missing or wrong."""
    message = "a valid token is needed: send 'Authorization: Bearer TOKEN'"
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def full(seconds: int) -> ApiError:
    """The queue is full; when to come again."""
    message = f"the queue is full; try again in {seconds} s"
    return ApiError(429, message, "rate_limit_error", code="queue_full", headers={"Retry-After": str(seconds)})


def draining() -> ApiError:
    """The server finishes what runs and takes nothing new."""
    headers = {"Retry-After": "5"} | _CLOSE
    return ApiError(503, "the server is shutting down", "server_error", code="shutting_down", headers=headers)


def timed_out(seconds: float) -> ApiError:
    """The request's time is over."""
    return ApiError(504, f"the request took longer than {seconds:g} s", "server_error", code="request_timeout")


def failed() -> ApiError:
    """Not the client's fault."""
    return ApiError(500, "the server failed at this request; its log says why", "server_error", code="internal_error")


_CLOSE = {"Connection": "close"}
