"""Answers in OpenAI's format: whole, or as server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from seqmoe.serve.errors import failed
from seqmoe.serve.job import Ended, Event, Failed, Job, Piece
from seqmoe.serve.protocol import StreamOptions
from seqmoe.serve.scheduler import Scheduler

_NO_STORE = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Shape:
    """How one answer is written: of a completion, or of a chat."""

    def __init__(self, model: str, chat: bool) -> None:
        self._chat = chat
        kind = "chat.completion" if chat else "text_completion"
        self._kinds = (kind, "chat.completion.chunk" if chat else kind)
        self._base = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, text: str, reason: str, usage: dict[str, int]) -> dict[str, Any]:
        """A complete answer."""
        said = {"message": {"role": "assistant", "content": text, "refusal": None}} if self._chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": reason}
        return self._base | {"object": self._kinds[0], "choices": [choice], "usage": usage}

    def first(self) -> dict[str, Any] | None:
        """What a stream begins with: in a chat, who speaks."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, None) if self._chat else None

    def piece(self, text: str) -> dict[str, Any]:
        """More text."""
        return self._chunk({"delta": {"content": text}} if self._chat else {"text": text}, None)

    def last(self, reason: str) -> dict[str, Any]:
        """Why it ended."""
        return self._chunk({"delta": {}} if self._chat else {"text": ""}, reason)

    def usage(self, usage: dict[str, int]) -> dict[str, Any]:
        """The counts, after the last choice."""
        return self._base | {"object": self._kinds[1], "choices": [], "usage": usage}

    def _chunk(self, said: dict[str, Any], reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": reason}
        return self._base | {"object": self._kinds[1], "choices": [choice]}


async def answer(
    scheduler: Scheduler, request: Request, job: Job, shape: Shape, options: StreamOptions | None
) -> Response:
    """Submit a job and answer with what comes of it, as a stream where ``options`` are given.

    A client that goes away takes its job along.
    """
    scheduler.submit(job)
    gone = asyncio.create_task(_watch(request, scheduler, job))
    events = _events(scheduler, job, gone)
    if options is None:
        async with aclosing(events):
            return JSONResponse(await _whole(events, job, shape))
    # The status depends on how it begins, so that comes first.
    begun = await anext(events)
    if isinstance(begun, Failed):
        await events.aclose()
        raise begun.error
    return StreamingResponse(
        _stream(begun, events, job, shape, options), media_type="text/event-stream", headers=_NO_STORE
    )


async def _watch(request: Request, scheduler: Scheduler, job: Job) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scheduler.cancel(job)
    job.put(Failed(failed()))  # nobody reads it, but who waits for an event goes on


async def _events(scheduler: Scheduler, job: Job, gone: asyncio.Task[None]) -> AsyncGenerator[Event, None]:
    try:
        while True:
            event = await job.next()
            yield event
            if not isinstance(event, Piece):
                return
    finally:
        gone.cancel()
        scheduler.cancel(job)


async def _whole(events: AsyncIterator[Event], job: Job, shape: Shape) -> dict[str, Any]:
    text: list[str] = []
    async for event in events:
        match event:
            case Piece():
                text.append(event.text)
            case Failed():
                raise event.error
            case Ended():
                return shape.whole("".join(text), event.reason, _usage(job, event))
    raise failed()


async def _stream(
    begun: Event, events: AsyncGenerator[Event, None], job: Job, shape: Shape, options: StreamOptions
) -> AsyncIterator[str]:
    async with aclosing(events):
        opening = shape.first()
        if opening is not None:
            yield _data(opening)
        event: Event | None = begun
        while event is not None:
            if isinstance(event, Failed):
                yield _data(event.error.body)
                return
            usage = _usage(job, event)
            chunk = shape.piece(event.text) if isinstance(event, Piece) else shape.last(event.reason)
            yield _data(chunk | {"usage": usage} if options.continuous_usage_stats else chunk)
            if isinstance(event, Ended):
                if options.include_usage:
                    yield _data(shape.usage(usage))
                yield "data: [DONE]\n\n"
            event = await anext(events, None)


def _usage(job: Job, event: Piece | Ended) -> dict[str, int]:
    prompt = len(job.prompt)
    return {"prompt_tokens": prompt, "completion_tokens": event.tokens, "total_tokens": prompt + event.tokens}


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"
