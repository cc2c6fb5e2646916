"""Load, serve, end: what `seqmoe serve` does."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seqmoe import __version__
from seqmoe.runtime.checkpoint import Checkpoint
from seqmoe.runtime.session import Session
from seqmoe.runtime.setup import Setup
from seqmoe.serve.app import Served, create_app
from seqmoe.serve.gate import Gate
from seqmoe.serve.limits import Limits
from seqmoe.serve.prompts import Prompts
from seqmoe.serve.scheduler import Scheduler
from seqmoe.serve.server import Server

# Longer contexts are to be asked for: each request's cache is as long as its prompt and answer may be.
_CONTEXT = 4096


def serve(
    checkpoint: Checkpoint,
    setup: Setup,
    name: str,
    limits: Limits,
    bound: socket.socket,
    token: str | None = None,
    template: Path | None = None,
    on_ready: Callable[[str], None] = print,
) -> bool:
    """Serve one model on a bound socket until a signal ends it; whether everything that ran was finished.

    ``limits.context`` 0 means the model's, at most 4096. ``on_ready`` is told the address. Raises `InputError` for what
    the model or the memory cannot take, before weights are loaded, and what has broken the pool for good.
    """
    logging.basicConfig(format="seqmoe: %(levelname)s: %(message)s")
    limits = replace(limits, context=limits.context or min(checkpoint.context, _CONTEXT))
    setup.check_batch(checkpoint, limits.batch, limits.context)
    prompts = Prompts(checkpoint.tokenizer, checkpoint.config.vocab_size, limits.context, template)
    with Session(checkpoint, setup) as session:
        scheduler = Scheduler(session, limits)
        residency = 1.0 if setup.spec.retention == "all" else setup.residency
        app = create_app(Served(name, setup.spec.title, residency, __version__), scheduler, prompts)
        server = Server(Gate(app, limits, token), scheduler, limits)
        scheduler.start()
        try:
            on_ready(_address(bound))
            server.run([bound])
        finally:
            scheduler.close()
        if scheduler.broken is not None:
            raise scheduler.broken
        return not server.forced


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
