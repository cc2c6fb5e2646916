"""The routes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from seqmoe.runtime.sampling import Sampling
from seqmoe.serve.answers import Shape, answer
from seqmoe.serve.errors import ApiError, failed, invalid, no_json
from seqmoe.serve.job import Job
from seqmoe.serve.prompts import Prompts
from seqmoe.serve.protocol import ChatRequest, CompletionRequest, StreamOptions
from seqmoe.serve.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Served:
    """What the server says of itself: the model's name, the system and the share of experts on the device."""

    model: str
    system: str
    residency: float
    version: str


def create_app(served: Served, scheduler: Scheduler, prompts: Prompts) -> FastAPI:
    """The application, without what stands in front of it (`seqmoe.serve.gate`)."""
    app = FastAPI(title="seqmoe", version=served.version, docs_url=None, redoc_url=None)
    started = int(time.time())
    page = resources.files("seqmoe.serve").joinpath("page.html").read_text(encoding="utf-8")
    card = {"id": served.model, "object": "model", "created": started, "owned_by": "seqmoe"}
    _word_errors(app)

    @app.get("/", response_class=HTMLResponse)
    async def live() -> HTMLResponse:
        """The live page."""
        return HTMLResponse(page)

    @app.get("/health")
    async def health() -> Response:
        """200 while requests are taken."""
        state = "draining" if scheduler.draining else "ok"
        return JSONResponse({"status": state}, 200 if state == "ok" else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(scheduler.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/status")
    async def status() -> dict[str, Any]:
        """For the live page."""
        return _status(served, scheduler, time.time() - started)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The one model."""
        return {"object": "list", "data": [card]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        """The model of that name."""
        _check_model(served, name)
        return card

    @app.post("/v1/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        """Continue a text."""
        _check_model(served, body.model)
        ids = await prompts.of_text(body.prompt)  # type: ignore[arg-type]
        return await _answer(body, request, ids, "prompt")

    @app.post("/v1/chat/completions")
    async def chat(body: ChatRequest, request: Request) -> Response:
        """Answer a conversation."""
        _check_model(served, body.model)
        ids = await prompts.of_chat([message.plain for message in body.messages])
        return await _answer(body, request, ids, "messages")

    async def _answer(body: CompletionRequest | ChatRequest, request: Request, ids: list[int], param: str) -> Response:
        tokens = prompts.answer_room(ids, body.tokens, param)
        # The API's own defaults: by chance, from all tokens.
        temperature = 1.0 if body.temperature is None else body.temperature
        top_p = 1.0 if body.top_p is None else body.top_p
        job = Job(ids, tokens, Sampling(temperature, top_p, body.seed, body.ignore_eos), body.stops)
        shape = Shape(served.model, chat=isinstance(body, ChatRequest))
        options = (body.stream_options or StreamOptions()) if body.stream else None
        return await answer(scheduler, request, job, shape, options)

    return app


def _check_model(served: Served, name: str) -> None:
    if name != served.model:
        message = f"model {name!r} is not served here; {served.model!r} is"
        raise ApiError(404, message, param="model", code="model_not_found")


def _status(served: Served, scheduler: Scheduler, uptime: float) -> dict[str, Any]:
    now = scheduler.snapshot
    return {
        "model": served.model,
        "system": served.system,
        "residency": served.residency,
        "uptime_seconds": round(uptime, 1),
        "state": "draining" if scheduler.draining else "ok",
        "batch": scheduler.limits.batch,
        "queue": scheduler.limits.queue,
        "running": now.running,
        "waiting": now.waiting,
        "tokens_per_second": now.tok_s,
        "hit_rate": now.hit_rate,
        "needed": now.decode.get("needed", 0),
        "hits": now.decode.get("hits", 0),
        "stall_seconds": now.decode.get("stall_seconds", 0.0) + now.prefill.get("stall_seconds", 0.0),
        "bytes": now.bytes,
        "slots": dict(now.slots),
    }


def _word_errors(app: FastAPI) -> None:
    """Every refusal, the framework's own ones too, in OpenAI's words."""

    @app.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> Response:
        return JSONResponse(error.body, error.status_code, error.headers)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}"
        unreadable = _unreadable(error.__cause__) if error.status_code == 400 else None
        worded = unreadable or ApiError(error.status_code, message, code="not_found")
        return JSONResponse(worded.body, worded.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        worded = _first_fault(error)
        return JSONResponse(worded.body, worded.status_code)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        return JSONResponse(failed().body, 500)


def _unreadable(cause: BaseException | None) -> ApiError | None:
    """What `json` raises beside its own error, which the framework turns into a refusal without a reason."""
    if isinstance(cause, RecursionError):
        return no_json("it is nested too deeply")
    if isinstance(cause, UnicodeError):
        return no_json("its text is not UTF-8")
    return no_json("a number has too many digits") if isinstance(cause, ValueError) else None


def _first_fault(error: RequestValidationError) -> ApiError:
    fault = error.errors()[0]
    where = [str(part) for part in fault["loc"] if part != "body"]
    if fault["type"] == "json_invalid":
        return no_json(fault["ctx"]["error"])
    if not where and fault["type"] in ("model_attributes_type", "missing"):
        return invalid("the body must be a JSON object, sent with 'Content-Type: application/json'")
    text = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        text = "is not known to this server; leave it out"
    # Branches of a union are of no interest to the client: the first part is the parameter's name.
    param = where[0] if where else text.partition(":")[0]
    return invalid(f"{'.'.join(where)}: {text}" if where else text, param)
