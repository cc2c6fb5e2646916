"""Protects the handling of servers: what they started ends with them, tokens are counted, deaths are told apart."""

from __future__ import annotations

import importlib
import json
import os
import sys
import textwrap
import time

import pytest

from baselines._shared.protocol import Refusal
from baselines._shared.server import Server, free_port
from baselines._shared.sse import answers, post_json, post_stream
from baselines._shared.text_stream import text_tokens

FAKE = textwrap.dedent(
    """
    import http.server, json, subprocess, sys, time
    port, script = int(sys.argv[1]), json.loads(sys.argv[2])
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("child", child.pid, flush=True)
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(200, {"status": "ok"})
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/echo":
                return self.answer(200, body)
            if self.path not in script:
                return self.answer(503, {"error": "still loading"})
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b": a comment\\n\\n")
            for chunk in script[self.path]:
                line = chunk if isinstance(chunk, str) else json.dumps(chunk)
                self.wfile.write(f"data: {line}\\n\\n".encode())
                self.wfile.flush()
        def answer(self, status, body):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())
        def log_message(self, *parts):
            pass
    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
    """
)


@pytest.fixture
def serving(tmp_path):
    """Start the fake server with scripted streams; yields a function that returns (server, port)."""
    program = tmp_path / "fake.py"
    program.write_text(FAKE)
    started = []

    def start(**streams):
        port = free_port()
        script = json.dumps({f"/{path.replace('_', '/')}": chunks for path, chunks in streams.items()})
        server = Server([sys.executable, str(program), str(port), script])
        started.append(server)
        server.wait_ready(port, "/health", "ok", seconds=30)
        return server, port

    yield start
    for server in started:
        server.stop()


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


def test_stopping_ends_the_server_and_its_children(serving):
    server, port = serving()
    child = int(server.matches(r"child (\d+)")[0].group(1))
    assert alive(child)
    server.stop()
    limit = time.monotonic() + 10
    while alive(child) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not alive(child)
    assert not answers(port, "/health")


def test_a_server_that_dies_while_loading_is_told_with_its_last_words():
    for words, kind, place in (
        ("CUDA error: out of memory", "oom", "device: "),
        ("cudaHostRegister: out of memory", "oom", "host_pinned: "),
        ("what:  std::bad_alloc", "oom", "host: "),
        ("no kernel image, pinned memory is fine", "crash", ""),
    ):
        with Server([sys.executable, "-c", f"print({words!r}); raise SystemExit(3)"]) as server:
            with pytest.raises(Refusal, match=f"^{place}the server ended with code 3 .*{words}") as refused:
                server.wait_ready(free_port(), "/health", seconds=30)
            assert refused.value.kind == kind


def test_a_server_that_dies_while_it_answers_is_told_with_its_last_words(tmp_path):
    program = tmp_path / "dying.py"
    answer = "self.send_response(200); self.end_headers(); self.wfile.write(b'{}')"
    dies = "print('torch.OutOfMemoryError: CUDA out of memory', flush=True); os._exit(4)"
    program.write_text(
        "import http.server, os, sys\nclass Handler(http.server.BaseHTTPRequestHandler):\n"
        f"    def do_GET(self): {answer}\n    def do_POST(self): {dies}\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()\n"
    )
    port = free_port()
    with (
        pytest.raises(Refusal, match=r"^device: .*code 4: .*OutOfMemoryError") as refused,
        Server([sys.executable, str(program), str(port)]) as server,
    ):
        server.wait_ready(port, "/health", seconds=30)
        list(post_stream(port, "/generate", {}))
    assert refused.value.kind == "oom"


def test_a_server_that_never_gets_ready_is_a_crash():
    with (
        Server([sys.executable, "-c", "import time; time.sleep(60)"]) as server,
        pytest.raises(Refusal, match="not ready"),
    ):
        server.wait_ready(free_port(), "/health", seconds=0.5)


def test_stream_yields_payloads_in_order_and_stops_at_done(serving):
    _, port = serving(stream=[{"n": 1}, {"n": 2}, "[DONE]", {"n": 3}])
    arrivals, payloads = zip(*post_stream(port, "/stream", {}), strict=True)
    assert payloads == ({"n": 1}, {"n": 2})
    assert list(arrivals) == sorted(arrivals)
    assert post_json(port, "/echo", {"a": [1]}) == {"a": [1]}


def test_errors_of_the_server_are_crashes(serving):
    _, port = serving(stream=[{"n": 1}, {"error": "expert lost"}])
    with pytest.raises(Refusal, match="expert lost"):
        list(post_stream(port, "/stream", {}))
    with pytest.raises(Refusal, match=r"answered 503: .*still loading"):
        list(post_stream(port, "/other", {}))
    with pytest.raises(Refusal, match="connection to the server broke"):
        list(post_stream(free_port(), "/stream", {}))


def test_tokens_are_counted_where_a_chunk_carries_several(serving):
    def chunk(text):
        return {"choices": [{"text": text}]}

    usage = {"choices": [], "usage": {"completion_tokens": 5}}
    _, port = serving(v1_completions=[chunk("a"), chunk("bc"), chunk("d"), chunk(""), usage, "[DONE]"])
    tokens = list(text_tokens(port, {"prompt": "x"}))
    assert [token.identifier for token in tokens] == [None] * 5
    assert tokens[2].time_ns == tokens[3].time_ns == tokens[4].time_ns


def test_ktransformers_reads_ids_that_accumulate(serving):
    worker = importlib.import_module("baselines.ktransformers.worker")
    _, port = serving(generate=[{"output_ids": [7]}, {"output_ids": [7, 8, 9]}, {"output_ids": [7, 8, 9]}, "[DONE]"])
    assert [token.identifier for token in worker.generate(port, [1], 3)] == [7, 8, 9]
