"""Whoever is slow, or stops in the middle, loses the connection and holds nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from diffuse_core.adapters.http_server.protocol import BoundedProtocol
from tests.adapters.http_server.asking import (
    PATIENCE_S,
    QUICK,
    Seen,
    ask,
    connected,
    echo,
    endless,
    post,
    read_answer,
    request,
    say,
    serving,
    until_closed,
    until_empty,
)

if TYPE_CHECKING:
    from diffuse_core.adapters.http_server import HttpServer

TRICKLE_S = 0.03


async def trickle(server: HttpServer, start: bytes, drop: bytes) -> bytes:
    """Send `start`, then a drop now and then; what comes until the connection is closed."""
    async with connected(server) as (reader, writer):
        writer.write(start)

        async def go_on() -> None:
            while True:
                await asyncio.sleep(TRICKLE_S)
                writer.write(drop)

        going = asyncio.create_task(go_on())
        try:
            return await until_closed(reader)
        finally:
            going.cancel()


@pytest.mark.parametrize("start", [b"", b"GET / HT", request()[:-2]], ids=["mute", "line", "head"])
async def test_a_head_that_does_not_come_is_not_waited_for(start: bytes) -> None:
    async with serving(echo(Seen())) as server:
        async with connected(server) as (reader, writer):
            writer.write(start)
            told = await until_closed(reader)
        assert told.startswith(b"HTTP/1.1 408 ")
        assert b"x-request-id: req_" in told
        await until_empty(server)


async def test_a_head_that_trickles_is_not_waited_for() -> None:
    """Slowloris: a header every now and then, for ever."""
    async with serving(echo(Seen())) as server:
        told = await trickle(server, b"GET / HTTP/1.1\r\nHost: x\r\n", b"A: b\r\n")
        assert told.startswith(b"HTTP/1.1 408 ")
        await until_empty(server)


async def test_a_second_head_that_trickles_is_not_waited_for() -> None:
    async with serving(echo(Seen()), replace(QUICK, idle_s=3.0)) as server:
        told = await trickle(server, request() + b"GET / HTTP/1.1\r\n", b"A: b\r\n")
        assert told.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in told


async def test_an_idle_connection_is_closed_without_a_word() -> None:
    async with serving(echo(Seen())) as server, connected(server) as (reader, writer):
        writer.write(request())
        assert (await read_answer(reader)).status == 200
        assert await until_closed(reader) == b""


async def test_a_body_that_stalls_is_not_waited_for() -> None:
    seen = Seen()
    async with serving(echo(seen), replace(QUICK, body_s=60.0)) as server:
        async with connected(server) as (reader, writer):
            writer.write(post(b"[1, 2, 3]")[:-4])
            told = await until_closed(reader)
        assert told.startswith(b"HTTP/1.1 408 ")
        await until_empty(server)
    assert seen.ended == ["disconnected"]


async def test_a_body_that_trickles_is_not_waited_for() -> None:
    seen = Seen()
    async with serving(echo(seen)) as server:
        head = request("POST", "/", "Content-Type: application/json", "Content-Length: 900")
        told = await trickle(server, head, b" ")
    assert told.startswith(b"HTTP/1.1 408 ")
    assert seen.ended == ["disconnected"]


async def test_a_reader_who_takes_nothing_ends_the_answer() -> None:
    seen = Seen()
    limits = replace(QUICK, abandoned_s=5.0)
    async with serving(endless(seen), limits) as server, connected(server) as (_, writer):
        writer.transport.pause_reading()
        writer.write(request())
        await seen.over.wait()
        await until_empty(server)
    assert seen.ended == ["disconnected"]


async def test_a_reader_who_takes_a_little_now_and_then_is_served() -> None:
    seen = Seen()
    async with serving(endless(seen)) as server, connected(server) as (reader, writer):
        writer.write(request())
        loop = asyncio.get_running_loop()
        until = loop.time() + 4 * QUICK.drain_s
        while loop.time() < until:
            assert await reader.read(65536)
            await asyncio.sleep(0.002)
        assert not seen.over.is_set()


async def test_what_is_sent_after_a_refusal_does_not_keep_the_reason_from_its_reader() -> None:
    async with serving(echo(Seen())) as server:
        told = await trickle(server, b"nonsense\r\n\r\n", b"and more\r\n")
    assert told.startswith(b"HTTP/1.1 400 ")


async def test_who_sends_much_before_reading_reads_why_it_was_refused() -> None:
    """Closed with what it sent unread, a connection is reset, and the reason is lost."""
    async with serving(echo(Seen())) as server, connected(server) as (reader, writer):
        writer.write(b"nonsense\r\n\r\n" + bytes(2_000_000))
        await asyncio.sleep(0.1)
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 431 ")


async def refuse(_scope: Any, _receive: Any, send: Any) -> None:
    await say(send, 401)


@pytest.mark.parametrize("kept", ["close", "keep-alive"])
async def test_who_sends_a_body_before_reading_reads_what_came_of_it(kept: str) -> None:
    """As proxies do that speak HTTP/1.0 or keep no connection."""

    def ask_blocking(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
            sock.sendall(post(bytes(8_000_000), f"Connection: {kept}"))
            return sock.recv(12)

    limits = replace(QUICK, linger_s=PATIENCE_S)
    async with serving(refuse, limits) as server:
        assert await asyncio.to_thread(ask_blocking, server.port) == b"HTTP/1.1 401"
        await until_empty(server)


async def test_a_client_that_goes_ends_what_it_asked_for() -> None:
    seen = Seen()
    async with serving(endless(seen, b"x")) as server:
        async with connected(server) as (_, writer):
            writer.write(request())
            await seen.begun.wait()
        await seen.over.wait()
        await until_empty(server)
    assert seen.ended == ["disconnected"]


async def test_an_app_that_does_not_listen_is_cancelled_when_its_client_goes() -> None:
    over = asyncio.Event()

    async def deaf(_scope: object, _receive: object, _send: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            over.set()

    async with serving(deaf) as server:
        async with connected(server) as (_, writer):
            writer.write(request())
            await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            await over.wait()


async def test_too_many_connections_are_refused() -> None:
    app = endless(Seen(), b"x", 0.01)
    limits = replace(QUICK, drain_s=5.0)
    async with serving(app, limits) as server, asyncio.TaskGroup() as group:
        streams = [group.create_task(hold(server)) for _ in range(QUICK.connections)]
        async with asyncio.timeout(5):
            while server.connections < QUICK.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        async with connected(server) as (reader, writer):
            writer.write(request())
            told = await until_closed(reader)
        for stream in streams:
            stream.cancel()
    assert told.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in told


async def hold(server: HttpServer) -> None:
    async with connected(server) as (reader, writer):
        writer.write(request())
        while await reader.read(65536):
            pass


async def test_an_idle_connection_makes_room_for_a_new_one() -> None:
    limits = replace(QUICK, idle_s=60.0)
    async with serving(echo(Seen()), limits) as server, connected(server) as (reader, writer):
        writer.write(request())
        await read_answer(reader)
        async with asyncio.timeout(10):
            answers = [await ask(server, request()) for _ in range(3 * QUICK.connections)]
    assert {answer.status for answer in answers} == {200}


async def test_connections_that_ask_nothing_keep_nobody_out() -> None:
    limits = replace(QUICK, head_s=60.0)
    async with serving(echo(Seen()), limits) as server, contextlib.AsyncExitStack() as stack:
        for _ in range(3 * QUICK.connections):
            _, writer = await stack.enter_async_context(connected(server))
            writer.write(b"GET / HTTP/1.1\r\nA: ")
        async with asyncio.timeout(10):
            answers = [await ask(server, request()) for _ in range(QUICK.connections)]
        assert server.connections <= QUICK.connections + 1
    assert {answer.status for answer in answers} == {200}


async def test_a_flood_of_nonsense_writes_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(echo(Seen())) as server:
        for _ in range(20):
            await ask(server, b"nonsense\r\n\r\n")
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


async def test_deadlines_outlive_a_defect_in_one_of_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    defects = iter([ValueError("what a client sent")])
    look = BoundedProtocol.look

    def broken(self: BoundedProtocol, now: float) -> None:
        for error in defects:
            raise error
        look(self, now)

    monkeypatch.setattr(BoundedProtocol, "look", broken)
    async with serving(echo(Seen())) as server:
        async with connected(server) as (reader, _):
            assert await until_closed(reader) == b""
        async with connected(server) as (reader, _):
            assert (await until_closed(reader)).startswith(b"HTTP/1.1 408 ")
    assert "a connection failed: ValueError at " in caplog.text
    assert "what a client sent" not in caplog.text
