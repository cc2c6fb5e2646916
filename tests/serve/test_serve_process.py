"""Protects `seqmoe serve` as people run it: a process, the reference model, OpenAI's own client, signals."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import openai
import pytest
from conftest import TEMPLATE

PROMPTS = ["def fibonacci(n):", "In the beginning", "import os\n", "12 + 35 = ", "class A:", "hacker: n.", "for i", "x"]
SECRET = "a-secret"


@contextmanager
def _process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    environment = {**os.environ, "SEQMOE_TOKEN": SECRET, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "seqmoe", "serve", "--host", "0.0.0.0", "--port", "0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"at http://0\.0\.0\.0:(\d+)", line):
                break
        else:
            pytest.fail("".join(said))
        yield process, f"http://127.0.0.1:{found.group(1)}"
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    template = tmp_path_factory.mktemp("template") / "chat.jinja"
    template.write_text(TEMPLATE)
    with _process("--batch", "4", "--chat-template", str(template)) as (_, url):
        yield url


@pytest.fixture(scope="module")
def client(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key=SECRET, timeout=300, max_retries=0) as client:
        yield client


def _complete(client, prompt, **options):
    how = {"max_tokens": 16, "temperature": 0.7, "seed": 5} | options
    return client.completions.create(model="reference", prompt=prompt, **how)


def test_openais_client_lists_streams_and_chats(client):
    assert [model.id for model in client.models.list()] == ["reference"]
    whole = _complete(client, PROMPTS[0])
    chunks = list(_complete(client, PROMPTS[0], stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text
    assert chunks[-1].usage == whole.usage
    assert len(chunks) > 8  # a piece of text comes as soon as it is certain
    said = client.chat.completions.create(
        model="reference", messages=[{"role": "user", "content": "1 + 1"}], max_completion_tokens=8, temperature=0
    )
    deltas = client.chat.completions.create(
        model="reference", messages=[{"role": "user", "content": "1 + 1"}], max_tokens=8, temperature=0, stream=True
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in deltas) == said.choices[0].message.content


def test_openais_client_knows_our_errors(client, url):
    with pytest.raises(openai.NotFoundError) as error:
        client.completions.create(model="gpt", prompt="x")
    assert (error.value.code, error.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as error:
        _complete(client, "x", max_tokens=-1)
    assert (error.value.type, error.value.param) == ("invalid_request_error", "max_tokens")
    with pytest.raises(openai.BadRequestError) as error:
        _complete(client, "x" * 1_000_000)
    assert error.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        _complete(client.with_options(api_key="another"), "x")
    assert _complete(client, "x", max_tokens=1).usage.completion_tokens == 1


def test_concurrent_clients_get_the_answers_they_get_alone(client):
    alone = [_complete(client, prompt).choices[0].text for prompt in PROMPTS]
    with ThreadPoolExecutor(8) as clients:
        together = list(clients.map(lambda prompt: _complete(client, prompt).choices[0].text, PROMPTS))
    assert together == alone


def test_a_client_that_does_not_read_blocks_nobody(client, url):
    body = b'{"model": "reference", "prompt": "x", "max_tokens": 200, "stream": true, "ignore_eos": true}'
    silent = socket.socket()
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    silent.connect(("127.0.0.1", int(url.rpartition(":")[2])))
    head = f"Host: localhost\r\nAuthorization: Bearer {SECRET}\r\nContent-Type: application/json\r\n"
    silent.sendall(f"POST /v1/completions HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    with silent:
        for _ in range(3):
            assert _complete(client, "x", max_tokens=4).usage.completion_tokens == 4
    assert httpx.get(f"{url}/health").status_code == 200


def test_sigterm_finishes_what_runs_refuses_the_rest_and_exits_0():
    with _process("--batch", "1") as (process, url):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key=SECRET, timeout=300, max_retries=0)
        stream = client.completions.create(
            model="reference", prompt="x", max_tokens=120, stream=True, temperature=0, extra_body={"ignore_eos": True}
        )
        texts = [next(stream).choices[0].text]
        rest = threading.Thread(target=lambda: texts.extend(chunk.choices[0].text for chunk in stream))
        rest.start()
        process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 60
        while httpx.get(f"{url}/health").status_code == 200:
            assert time.monotonic() < end
        with pytest.raises(openai.InternalServerError) as refused:
            _complete(client, "x")
        assert (refused.value.status_code, refused.value.code) == (503, "shutting_down")
        rest.join()
        assert process.wait(60) == 0
        assert len(texts) > 100  # nearly each token is a piece of its own
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health")


def test_others_are_refused_without_a_token(monkeypatch):
    environment = {name: value for name, value in os.environ.items() if name != "SEQMOE_TOKEN"}
    ended = subprocess.run(
        [sys.executable, "-m", "seqmoe", "serve", "--host", "0.0.0.0"], capture_output=True, text=True, env=environment
    )
    assert ended.returncode == 2
    assert "--token-file" in ended.stderr
