"""SIGTERM while requests run: what has begun is finished, what comes is refused, the exit code is 0."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import httpx
import openai

from seqmoe.harness.load.clients import Answer, Client
from seqmoe.harness.load.plan import Question
from seqmoe.harness.load.server import ServerProcess

# Long enough that the last answers still run when the first new request comes.
_TOKENS = 200
_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Ending:
    """How the server ended: of ``running`` streams how many came whole, what a new request was told, the exit code.

    ``exit_code`` is None for a server that had to be killed.
    """

    running: int
    finished: int
    refused: str
    exit_code: int | None

    def faults(self) -> list[str]:
        """What was not as it should be."""
        found = []
        if self.finished < self.running:
            found.append(f"SIGTERM: {self.running - self.finished} of {self.running} running answers were not finished")
        if self.refused != "503 shutting_down":
            found.append(f"SIGTERM: a new request got {self.refused}, not 503 shutting_down")
        if self.exit_code != 0:
            found.append(f"SIGTERM: exit code {self.exit_code}, not 0")
        return found


def end_while_running(server: ServerProcess, model: str, question: Question, streams: int) -> Ending:
    """Send SIGTERM while ``streams`` answers run, at most the server's batch."""
    asked = [replace(question, tokens=_TOKENS, stop=None)]
    begun, answers = threading.Barrier(streams + 1), list[Answer]()
    threads = [
        threading.Thread(target=_stream, args=(server.url, model, asked, begun, answers), daemon=True)
        for _ in range(streams)
    ]
    for thread in threads:
        thread.start()
    try:
        begun.wait(_SECONDS)
    except threading.BrokenBarrierError:
        return Ending(streams, 0, "nothing, since not all streams began", None)
    server.process.send_signal(signal.SIGTERM)
    refused = _refusal(server.url, model, asked)
    for thread in threads:
        thread.join(_SECONDS)
    try:
        exit_code: int | None = server.process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        exit_code = None
    return Ending(streams, sum(answer.tokens == _TOKENS for answer in answers), refused, exit_code)


def _stream(url: str, model: str, asked: Sequence[Question], begun: threading.Barrier, answers: list[Answer]) -> None:
    with Client(url, model, asked) as client:
        try:
            answers.append(client.streamed(0, lambda: begun.wait(_SECONDS), ignore_eos=True))
        # An answer that breaks off is one that is not there, whatever the library calls it.
        except Exception:
            begun.abort()


def _refusal(url: str, model: str, asked: Sequence[Question]) -> str:
    """What a request gets that comes once the server says that it ends."""
    end = time.monotonic() + _SECONDS
    try:
        while httpx.get(f"{url}/health", timeout=_SECONDS, trust_env=False).status_code == 200:
            if time.monotonic() > end:
                return f"no chance: /health still says 200 after {_SECONDS:g} s"
            time.sleep(0.02)
        with Client(url, model, asked) as client:
            client.whole(0)
    except openai.APIStatusError as error:
        return f"{error.status_code} {error.code}"
    except (httpx.HTTPError, openai.OpenAIError) as error:
        return type(error).__name__
    return "an answer"
