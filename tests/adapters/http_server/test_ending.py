"""Binding a port, and ending: answers get their time, and then an end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from dataclasses import replace

import pytest

from diffuse_core.adapters.http_server import serve_http
from diffuse_core.errors import UsageError
from tests.adapters.http_server.asking import (
    QUICK,
    Seen,
    ask,
    connected,
    echo,
    endless,
    read_answer,
    request,
    say,
    serving,
    until_closed,
    whole_body,
)


async def test_a_port_in_use_is_named() -> None:
    async with serving(echo(Seen())) as server:
        with pytest.raises(UsageError, match=rf"port {server.port} is in use.*--port"):
            async with serve_http(echo(Seen()), "127.0.0.1", server.port):
                pass


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("192.0.2.7", "192.0.2.7 is no address of this machine.*--host"),
        ("no-such-host.invalid", "no such host"),
        ("a" * 70, "no such host"),
    ],
)
async def test_a_host_of_elsewhere_is_refused(host: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        async with serve_http(echo(Seen()), host, 0):
            pass


async def test_an_address_can_be_asked_at() -> None:
    async with serving(echo(Seen())) as server:
        assert server.address == f"127.0.0.1:{server.port}"
        assert (await ask(server, request())).body == b"ok"


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
async def test_ipv6_is_written_in_brackets() -> None:
    try:
        async with serve_http(echo(Seen()), "::1", 0, QUICK) as server:
            assert server.address == f"[::1]:{server.port}"
    except UsageError:
        pytest.skip("no IPv6 loopback here")


async def test_neither_signals_nor_log_handlers_are_touched() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    handlers = list(logging.getLogger().handlers)
    async with serving(echo(Seen())):
        assert before == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
        assert handlers == logging.getLogger().handlers
        assert logging.getLogger("uvicorn").handlers == []


async def test_an_answer_that_is_being_given_is_finished_before_the_end() -> None:
    go_on = asyncio.Event()
    begun = asyncio.Event()

    async def app(_scope: object, receive: object, send: object) -> None:
        await whole_body(receive)
        begun.set()
        await go_on.wait()
        await say(send, body=b"done")

    async def client(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request())
        try:
            return await until_closed(reader)
        finally:
            writer.close()

    loop = asyncio.get_running_loop()
    async with serving(app, replace(QUICK, grace_s=5.0)) as server:
        asked = asyncio.create_task(client(server.port))
        await begun.wait()
        loop.call_later(0.05, go_on.set)
    told = await asked
    assert told.startswith(b"HTTP/1.1 200")
    assert told.endswith(b"done")


async def test_a_stream_is_cut_after_its_grace_and_shows_that_it_is_not_whole() -> None:
    seen = Seen()
    loop = asyncio.get_running_loop()
    async with serving(endless(seen, b"x", 0.01)) as server:
        asked = asyncio.create_task(stream(server.port))
        await seen.begun.wait()
        started = loop.time()
    assert QUICK.grace_s <= loop.time() - started < QUICK.grace_s + 1.5
    told = await asked
    assert told.startswith(b"HTTP/1.1 200")
    assert not told.endswith(b"0\r\n\r\n")
    assert seen.ended == ["cancelled"]


async def stream(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request())
    try:
        return await until_closed(reader)
    finally:
        writer.close()


async def test_a_cancelled_server_does_not_wait_for_streams() -> None:
    seen = Seen()
    ports: asyncio.Queue[int] = asyncio.Queue()

    async def run() -> None:
        limits = replace(QUICK, grace_s=60.0)
        async with serve_http(endless(seen, b"x", 0.01), "127.0.0.1", 0, limits) as server:
            ports.put_nowait(server.port)
            await asyncio.Event().wait()

    running = asyncio.create_task(run())
    asked = asyncio.create_task(stream(await ports.get()))
    await seen.begun.wait()
    running.cancel()
    async with asyncio.timeout(10):
        await asyncio.wait([running])
        await asked
    assert running.cancelled()
    assert seen.ended == ["cancelled"]


async def test_a_second_cancellation_ends_the_grace() -> None:
    seen = Seen()
    stop = asyncio.Event()
    ports: asyncio.Queue[int] = asyncio.Queue()

    async def run() -> None:
        limits = replace(QUICK, grace_s=60.0)
        async with serve_http(endless(seen, b"x", 0.01), "127.0.0.1", 0, limits) as server:
            ports.put_nowait(server.port)
            await stop.wait()

    running = asyncio.create_task(run())
    asked = asyncio.create_task(stream(await ports.get()))
    await seen.begun.wait()
    stop.set()
    await asyncio.sleep(0.05)
    assert not running.done()
    running.cancel()
    async with asyncio.timeout(10):
        await asyncio.wait([running])
        await asked


async def test_no_connection_is_taken_while_it_ends() -> None:
    seen = Seen()
    refused = False
    async with serving(endless(seen, b"x", 0.01), replace(QUICK, grace_s=0.5)) as server:
        asked = asyncio.create_task(stream(server.port))
        await seen.begun.wait()

        async def try_later(port: int) -> bool:
            await asyncio.sleep(0.1)
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                return True
            writer.close()
            return False

        trying = asyncio.create_task(try_later(server.port))
    refused = await trying
    await asked
    assert refused


async def test_requests_in_a_row_are_answered_in_a_row() -> None:
    seen = Seen()
    async with serving(echo(seen)) as server, connected(server) as (reader, writer):
        for body in (b"1", b"[2]", b"[3, 3]"):
            writer.write(request("POST", "/", body=body))
        answers = [(await read_answer(reader)).body for _ in range(3)]
    assert answers == [b"1", b"[2]", b"[3, 3]"] == seen.bodies


async def test_the_answer_to_head_has_no_body() -> None:
    async with serving(echo(Seen())) as server, connected(server) as (reader, writer):
        writer.write(request("HEAD") + request())
        first = await read_answer(reader, "HEAD")
        second = await read_answer(reader)
    assert (first.status, first.headers["content-length"]) == (200, "2")
    assert (second.status, second.body) == (200, b"ok")


async def test_a_defect_is_told_also_to_head() -> None:
    async def broken(_scope: object, _receive: object, _send: object) -> None:
        raise ValueError("a defect")

    async with serving(broken) as server:
        for method in ("GET", "HEAD"):
            answer = await ask(server, request(method), method)
            assert (answer.status, answer.headers["connection"]) == (500, "close")


async def test_who_got_no_answer_before_the_end_is_told_so() -> None:
    begun = asyncio.Event()

    async def mute(_scope: object, receive: object, _send: object) -> None:
        await whole_body(receive)
        begun.set()
        await asyncio.Event().wait()

    async with serving(mute) as server:
        asked = asyncio.create_task(stream(server.port))
        await begun.wait()
    told = await asked
    assert told.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 5" in told
    assert b"is ending" in told
