"""A server in this process, on a thread of its own and a real socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import torch

import seqmoe
from seqmoe.runtime.session import Session
from seqmoe.serve.app import Served, create_app
from seqmoe.serve.gate import Gate
from seqmoe.serve.limits import Limits
from seqmoe.serve.prompts import Prompts
from seqmoe.serve.scheduler import Scheduler
from seqmoe.serve.server import Server, listening_socket

LIMITS = Limits(batch=4, context=512)
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


@dataclass
class Running:
    """Where it listens, what computes, and a client without a time limit of its own."""

    url: str
    port: int
    scheduler: Scheduler
    client: httpx.Client

    def complete(self, prompt: object = "a prompt", **options: object) -> httpx.Response:
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True} | options
        return self.client.post("/v1/completions", json=body)


@contextmanager
def running(
    session: Session,
    limits: Limits = LIMITS,
    token: str | None = None,
    template: Path | None = None,
) -> Iterator[Running]:
    config = session.engine.checkpoint.config
    prompts = Prompts(session.tokenizer, config.vocab_size, limits.context, template)
    scheduler = Scheduler(session, limits)
    app = create_app(Served("tiny", "LRU", 0.45, "0"), scheduler, prompts)
    bound = listening_socket("127.0.0.1", 0, token)
    server = Server(Gate(app, limits, token), scheduler, limits)
    # It listens from here on; connections wait until the loop runs.
    bound.listen()
    port = bound.getsockname()[1]
    scheduler.start()
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    try:
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=120) as client:
            yield Running(url, port, scheduler, client)
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
        scheduler.close()


@pytest.fixture(scope="module")
def session(tiny_checkpoint):
    torch.set_num_threads(1)
    with seqmoe.load(tiny_checkpoint, 0.45, "lru") as session:
        yield session


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("template") / "chat.jinja"
    path.write_text(TEMPLATE)
    return path


@pytest.fixture(scope="module")
def served(session, template):
    with running(session, template=template) as server:
        yield server


@pytest.fixture
def serve_with(session):
    """Start a server with other limits."""
    return lambda **options: running(session, **options)
