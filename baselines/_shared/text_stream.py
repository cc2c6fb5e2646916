"""Token times from an OpenAI-style completion stream, which sends text and hides token ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from baselines._shared.clock import Token
from baselines._shared.sse import post_stream


def text_tokens(port: int, body: dict[str, Any]) -> Iterator[Token]:
    """POST to /v1/completions with ``stream`` and yield one `Token` without an id per token.

    A chunk may carry several tokens, for instance while a UTF-8 character is incomplete; tokens are what counts, so
    those that the closing usage record counts beyond the chunks are stamped with the last chunk's arrival.
    """
    chunks = counted = last = 0
    for arrival, payload in post_stream(port, "/v1/completions", {**body, "stream": True}):
        if usage := payload.get("usage"):
            counted = int(usage["completion_tokens"])
        choices = payload.get("choices") or [{}]
        if choices[0].get("text"):
            chunks, last = chunks + 1, arrival
            yield Token(None, arrival)
    for _ in range(counted - chunks):
        yield Token(None, last)
