"""A server that does what it is told: answers of an OpenAI server one after another, and `/metrics` of a text."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


@dataclass
class Fake:
    """``script`` holds the answers still to be given, then ``text`` is; ``metrics`` makes what `/metrics` says."""

    text: str = "right"
    script: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    metrics: Callable[[], str] = lambda: ""
    asked: int = 0
    url: str = ""

    def refuse(self, times: int) -> None:
        """Give 429 first."""
        body = json.dumps({"error": {"message": "full", "type": "rate_limit_error", "code": "queue_full"}})
        self.script += [(429, {"Retry-After": "0"}, body)] * times

    def answer(self, stream: bool) -> tuple[int, dict[str, str], str]:
        """The next one."""
        self.asked += 1
        if self.script:
            return self.script.pop(0)
        choice = {"index": 0, "text": self.text, "finish_reason": "length", "logprobs": None}
        whole = {"id": "x", "object": "text_completion", "created": 0, "model": "fake", "choices": [choice]}
        if not stream:
            return 200, {}, json.dumps(whole | {"usage": USAGE})
        events = [whole, whole | {"choices": [], "usage": USAGE}]
        lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        return 200, {"Content-Type": "text/event-stream"}, lines + "data: [DONE]\n\n"


@contextmanager
def fake_server(fake: Fake) -> Iterator[Fake]:
    """Serve it on a free port; its address is ``url``."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, {}, fake.metrics())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                answer = fake.answer(body.get("stream", False))
            self._send(*answer)

        def _send(self, status: int, headers: dict[str, str], text: str) -> None:
            self.send_response(status)
            for name, value in ({"Content-Type": "application/json"} | headers).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        fake.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield fake
        finally:
            server.shutdown()
