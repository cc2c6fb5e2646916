"""Protects the server from its clients: what is wrong is refused in OpenAI's words, and the next one is answered."""

from __future__ import annotations

import json
import socket

import httpx
import pytest

from seqmoe.serve.gate import is_loopback
from seqmoe.serve.limits import Limits
from seqmoe.serve.server import listening_socket
from seqmoe.spec.errors import InputError


@pytest.fixture(autouse=True)
def _alive(served):
    yield
    assert served.complete(max_tokens=2).status_code == 200


def _refused(response, status, param=None, code=None):
    error = response.json()["error"]
    assert response.status_code == status
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert (error["param"], error["code"]) == (param, code)
    return error["message"]


@pytest.mark.parametrize(
    ("wrong", "status", "param", "code", "message"),
    [
        ({"model": "another"}, 404, "model", "model_not_found", "'tiny' is"),
        ({"max_tokens": -1}, 400, "max_tokens", None, "greater than or equal to 1"),
        ({"max_tokens": 0}, 400, "max_tokens", None, "greater than or equal to 1"),
        ({"max_tokens": "5"}, 400, "max_tokens", None, "valid integer"),
        ({"max_tokens": 10**9}, 400, "prompt", "context_length_exceeded", "512 tokens"),
        ({"temperature": -1}, 400, "temperature", None, "greater"),
        ({"temperature": 2.5}, 400, "temperature", None, "less"),
        ({"top_p": 0}, 400, "top_p", None, "greater than 0"),
        ({"seed": 2**64}, 400, "seed", None, "less"),
        ({"stop": [""]}, 400, "stop", None, "at least 1"),
        ({"stop": ["a"] * 5}, 400, "stop", None, "at most 4"),
        ({"prompt": ""}, 400, "prompt", None, "at least one"),
        ({"prompt": []}, 400, "prompt", None, "at least one"),
        ({"prompt": ["a", "b"]}, 400, "prompt", None, "one prompt"),
        ({"prompt": [5, 10**6]}, 400, "prompt", None, "token 1000000"),
        ({"prompt": [-1]}, 400, "prompt", None, "token -1"),
        ({"prompt": 5}, 400, "prompt", None, "prompt"),
        ({"prompt": "x" * 600}, 400, "prompt", "context_length_exceeded", "600 tokens"),
        ({"prompt": "x" * 1_000_000}, 400, "prompt", "context_length_exceeded", "1000000 characters"),
        ({"n": 2}, 400, "n", None, "not supported"),
        ({"echo": True}, 400, "echo", None, "not supported"),
        ({"logprobs": 3}, 400, "logprobs", None, "not supported"),
        ({"presence_penalty": 0.5}, 400, "presence_penalty", None, "not supported"),
        ({"stream_options": {"include_usage": True}}, 400, "stream_options", None, "stream is true"),
        ({"max_token": 5}, 400, "max_token", None, "not known"),
    ],
)
def test_wrong_values(served, wrong, status, param, code, message):
    assert message in _refused(served.complete(**wrong), status, param, code)


def test_what_asks_for_nothing_is_accepted(served):
    options = {"n": 1, "echo": False, "logprobs": None, "presence_penalty": 0, "logit_bias": {}, "user": "me"}
    assert served.complete(**options).status_code == 200


def test_messages_that_are_no_text(served):
    def send(messages):
        return served.client.post("/v1/chat/completions", json={"model": "tiny", "messages": messages})

    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    assert "messages" in _refused(send(picture), 400, "messages")
    _refused(send([{"role": "tool", "content": "x"}]), 400, "messages")
    _refused(send([]), 400, "messages")


def test_a_model_without_a_chat_template_says_so(serve_with):
    with serve_with() as server:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
        response = server.client.post("/v1/chat/completions", json=body)
        assert "/v1/completions" in _refused(response, 400, "messages", "no_chat_template")


@pytest.mark.parametrize("body", [b"{", b"", b"[]", b"\xff\xfe", b'"text"', b'{"model": "tiny", "prompt": "\\ud800"}'])
def test_bodies_that_are_no_request(served, body):
    response = served.client.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"model": "tiny", "prompt": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested too deeply"),
        (b'{"model": "tiny", "prompt": "x", "seed": ' + b"9" * 100_000 + b"}", "too many digits"),
        (b'{"model": "tiny", "prompt": "\xff"}', "not UTF-8"),
    ],
    ids=("broken", "lists", "objects", "closed", "digits", "bytes"),
)
def test_what_json_cannot_hold_is_named_so(served, body, message):
    response = served.client.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
    assert message in _refused(response, 400, code="invalid_json")


def test_a_refused_value_is_quoted_in_short(served):
    nested: list = []
    for _ in range(800):
        nested = [nested]
    for value in ("x" * 1_000_000, nested):
        assert len(_refused(served.complete(tools=value), 400, "tools")) < 200


def test_json_must_be_called_so(served):
    body = json.dumps({"model": "tiny", "prompt": "x"})
    response = served.client.post("/v1/completions", content=body, headers={"Content-Type": "text/plain"})
    assert "application/json" in _refused(response, 400)


def test_unknown_routes_and_methods(served):
    _refused(served.client.get("/v1/nothing"), 404, code="not_found")
    _refused(served.client.get("/v1/completions"), 405, code="not_found")


def test_a_body_above_the_limit_is_not_read(serve_with):
    with serve_with(limits=Limits(batch=1, context=64, body_bytes=1000)) as server:
        _refused(server.complete("x" * 2000), 413, code="request_too_large")
        chunks = iter([b"x" * 600, b"x" * 600])
        try:
            response = server.client.post(
                "/v1/completions", content=chunks, headers={"Content-Type": "application/json"}
            )
            _refused(response, 413, code="request_too_large")
        except httpx.WriteError:  # the server may be gone before all of it is sent
            pass
        assert server.complete("x", max_tokens=2).status_code == 200


def test_a_body_or_a_request_that_does_not_come_ends(serve_with):
    with serve_with(limits=Limits(batch=1, context=64, silent_seconds=1)) as server:
        for begun in (
            b"",
            b"POST /v1/comp",
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{",
        ):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
                client.sendall(begun)
                try:
                    got = b"".join(iter(lambda client=client: client.recv(4096), b""))
                except ConnectionResetError:
                    got = b""
                assert (b" 408 " in got) == begun.endswith(b"{")
        assert server.complete("x", max_tokens=2).status_code == 200


def test_a_token_is_asked_for(serve_with):
    with serve_with(token="secret") as server:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "secret"},
            {"Authorization": "Bearer"},
        ):
            for path in ("/v1/models", "/metrics", "/status", "/openapi.json"):
                response = server.client.get(path, headers=headers)
                _refused(response, 401, code="invalid_api_key")
                assert response.headers["www-authenticate"] == "Bearer"
        assert server.client.get("/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 200
        assert [server.client.get(path).status_code for path in ("/", "/health")] == [200, 200]


def test_a_page_elsewhere_cannot_reach_a_server_without_a_token(served):
    response = served.client.get("/v1/models", headers={"Host": "evil.example"})
    _refused(response, 403, code="forbidden_host")
    for host in ("localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "[::1]"):
        assert served.client.get("/v1/models", headers={"Host": host}).status_code == 200


def test_others_are_let_in_with_a_token_only():
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        assert not is_loopback(host)
        with pytest.raises(InputError, match="--token-file"):
            listening_socket(host, 0, None)
    listening_socket("0.0.0.0", 0, "secret").close()
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))


def test_an_address_in_use_is_refused(served):
    with pytest.raises(InputError, match=f"--port {served.port}"):
        listening_socket("127.0.0.1", served.port, None)
