"""Raw HTTP on sockets, and apps that answer it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from diffuse_core.adapters.http_server import HttpLimits, serve_http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from diffuse_core.adapters.http_server import HttpServer

PATIENCE_S = 5.0
QUICK = HttpLimits(
    connections=4,
    head_bytes=4096,
    headers=20,
    head_s=0.15,
    body_bytes=1000,
    bodies_bytes=1500,
    json_depth=8,
    json_values=50,
    stall_s=0.15,
    body_s=0.6,
    idle_s=0.15,
    drain_s=0.2,
    write_bytes=4096,
    linger_s=0.2,
    abandoned_s=0.1,
    grace_s=0.3,
)


def request(
    method: str = "GET", path: str = "/", *lines: str, body: bytes = b"", host: str = "localhost"
) -> bytes:
    """A request; a body gets its length."""
    head = [f"{method} {path} HTTP/1.1", f"Host: {host}", *lines]
    if body:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode() + body


def post(body: bytes, *lines: str, path: str = "/") -> bytes:
    """A request with a body of JSON."""
    return request("POST", path, "Content-Type: application/json", *lines, body=body)


@dataclass
class Answer:
    """A response as it came."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Seen:
    """What an app saw of requests."""

    bodies: list[bytes] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


async def whole_body(receive: Any) -> bytes | None:
    """The body; None where the client goes before its end."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if not message["more_body"]:
            return body


async def say(send: Any, status: int = 200, body: bytes = b"ok") -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def echo(seen: Seen) -> Any:
    """An app that gives a request's body back."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        seen.begun.set()
        body = await whole_body(receive)
        if body is None:
            seen.ended.append("disconnected")
            seen.over.set()
            return
        seen.bodies.append(body)
        await say(send, body=body or b"ok")

    return app


def endless(seen: Seen, piece: bytes = b"x" * 2000, pause: float = 0.0) -> Any:
    """An app that streams until it is cancelled or told that nobody listens."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            seen.ended.append("disconnected")

        listening = asyncio.create_task(listen())
        await asyncio.sleep(0)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while not listening.done():
                message = {"type": "http.response.body", "body": piece, "more_body": True}
                await send(message)
                seen.begun.set()
                await asyncio.sleep(pause)
        except asyncio.CancelledError:
            seen.ended.append("cancelled")
            raise
        finally:
            listening.cancel()
            seen.over.set()

    return app


@contextlib.asynccontextmanager
async def serving(app: Any, limits: HttpLimits = QUICK) -> AsyncIterator[HttpServer]:
    """A server on a free port of loopback."""
    async with asyncio.timeout(15), serve_http(app, "127.0.0.1", 0, limits) as server:
        yield server


@contextlib.asynccontextmanager
async def connected(
    server: HttpServer,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that is closed at the end, however that comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def read_answer(reader: asyncio.StreamReader, method: str = "GET") -> Answer:
    """One response off a connection."""
    async with asyncio.timeout(PATIENCE_S):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = b""
        if method != "HEAD":
            body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Answer(int(first.split()[1]), headers, body)


async def ask(server: HttpServer, data: bytes, method: str = "GET") -> Answer:
    """The first answer to what is sent."""
    async with connected(server) as (reader, writer):
        writer.write(data)
        return await read_answer(reader, method)


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the server closes the connection."""
    got = b""
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionResetError):
            while piece := await reader.read(65536):
                got += piece
    return got


async def until_empty(server: HttpServer) -> None:
    """Wait until no connection is open."""
    async with asyncio.timeout(PATIENCE_S):
        while server.connections:  # noqa: ASYNC110  (they end one by one)
            await asyncio.sleep(0.01)
