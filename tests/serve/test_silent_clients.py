"""Protects the server's memory and its end from a client that does not read: the connection is given up."""

from __future__ import annotations

import asyncio
import socket

import uvicorn

from seqmoe.serve.server import connections


def test_who_does_not_read_is_disconnected():
    sent, gone = [], asyncio.Event()

    async def endless(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.is_set():
            await send({"type": "http.response.body", "body": b"x" * 2**20, "more_body": True})
            sent.append(1)

    async def watch(scope, receive, send):
        async def until_gone():
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()

        await asyncio.gather(endless(scope, receive, send), until_gone())

    async def run():
        config = uvicorn.Config(watch, http=connections(1.0), lifespan="off", ws="none", log_level="error")
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as bound:
            port = bound.getsockname()[1]
            serving = asyncio.create_task(server._serve([bound]))
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.wait_for(gone.wait(), 60)
            writer.transport.abort()
            server.should_exit = True
            await serving

    asyncio.run(run())
    assert sent
