"""A client for servers on this machine that stream server-sent events; nothing leaves 127.0.0.1."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from baselines._shared.protocol import Refusal

HOST = "127.0.0.1"
_TIMEOUT_SECONDS = 600.0


def post_stream(port: int, path: str, body: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """POST ``body`` and yield (arrival in perf_counter_ns, payload) for every ``data:`` line until the stream ends.

    Raises `Refusal` (crash) when the server answers with an error, in the status or inside the stream.
    """
    with _posted(port, path, body) as response:
        for line in response:
            arrival = time.perf_counter_ns()
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            payload = json.loads(data)
            if "error" in payload:
                raise Refusal("crash", f"{path} failed while streaming: {payload['error']}")
            yield arrival, payload


def post_json(port: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """POST ``body`` and return the JSON object that answers it."""
    with _posted(port, path, body) as response:
        answer: dict[str, Any] = json.loads(response.read())
        return answer


@contextmanager
def _posted(port: int, path: str, body: dict[str, Any]) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(HOST, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            answer = response.read(2000).decode(errors="replace")
            raise Refusal("crash", f"{path} answered {response.status}: {answer}")
        yield response
    except (OSError, http.client.HTTPException) as error:
        raise Refusal("crash", f"the connection to the server broke: {error!r}") from None
    finally:
        connection.close()


def answers(port: int, path: str, containing: str = "") -> bool:
    """Whether a GET of ``path`` is answered with 200 and a body that contains the text: the server is ready."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status == 200 and containing in response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
