"""Requests whose end two programs may see in different places are not served."""

from __future__ import annotations

import pytest

from tests.adapters.http_server.asking import (
    QUICK,
    Seen,
    connected,
    echo,
    request,
    serving,
    until_closed,
)

INNER = b"GET /inner HTTP/1.1\r\nHost: localhost\r\n\r\n"


def raw(*lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join(["POST / HTTP/1.1", "Host: localhost", *lines, "", ""]).encode() + body


SHAPES = {
    "both": raw("Content-Length: 5", "Transfer-Encoding: chunked", body=b"0\r\n\r\n" + INNER),
    "both, the other way": raw(
        "Transfer-Encoding: chunked", "Content-Length: 5", body=b"0\r\n\r\n" + INNER
    ),
    "two lengths": raw("Content-Length: 5", "Content-Length: 6", body=b"12345" + INNER),
    "a list of lengths": raw("Content-Length: 5, 6", body=b"12345" + INNER),
    "a signed length": raw("Content-Length: +5", body=b"12345" + INNER),
    "a length of letters": raw("Content-Length: 0x5", body=b"12345" + INNER),
    "a negative length": raw("Content-Length: -1", body=INNER),
    "a coding before chunked": raw("Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n" + INNER),
    "chunked twice": raw(
        "Transfer-Encoding: chunked", "Transfer-Encoding: chunked", body=b"0\r\n\r\n" + INNER
    ),
    "chunked with a tail": raw("Transfer-Encoding: chunked-no", body=b"0\r\n\r\n" + INNER),
    "a space before the colon": raw("Content-Length : 5", body=b"12345" + INNER),
    "a folded header": raw("X: a", "\tb: c", "Transfer-Encoding: \x0bchunked", body=INNER),
    "a bare carriage return": raw("X: a\rTransfer-Encoding: chunked", body=INNER),
    "a null byte": raw("X: a\0b", body=INNER),
    "no host": b"GET / HTTP/1.1\r\n\r\n" + INNER,
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + INNER,
    "a chunk of a bad size": raw("Transfer-Encoding: chunked", body=b"zz\r\n\r\n" + INNER),
    "a chunk of a negative size": raw("Transfer-Encoding: chunked", body=b"-1\r\n\r\n" + INNER),
    "a chunk of a huge size": raw("Transfer-Encoding: chunked", body=b"f" * 30 + b"\r\n" + INNER),
    "a chunk without its end": raw("Transfer-Encoding: chunked", body=b"1\r\nabc\r\n" + INNER),
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_what_can_be_read_in_two_ways_is_refused_and_nothing_after_it(shape: str) -> None:
    seen: list[str] = []
    inner = echo(Seen())

    async def app(scope: dict[str, str], receive: object, send: object) -> None:
        seen.append(scope["path"])
        await inner(scope, receive, send)

    async with serving(app) as server, connected(server) as (reader, writer):
        writer.write(SHAPES[shape])
        told = await until_closed(reader)
    assert told.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 ", b"HTTP/1.1 505 "))
    assert told.count(b"x-request-id") == 1
    assert "/inner" not in seen


@pytest.mark.parametrize("times", [1, 3])
async def test_a_length_that_is_told_several_times_alike_is_one(times: int) -> None:
    seen = Seen()
    async with serving(echo(seen)) as server, connected(server) as (reader, writer):
        writer.write(raw(*["Content-Length: 5"] * times, "Connection: close", body=b"12345"))
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 200 ")
    assert seen.bodies == [b"12345"]


@pytest.mark.parametrize(
    "head",
    [
        request("GET", "/", "A: " + "a" * 5000),
        request("GET", "/", *[f"A{at}: b" for at in range(30)]),
        request("GET", "/" + "a" * 6000),
        b"GET / HTTP/1.1\r\nA: " + b"a" * 400_000,
        request("GET", "/", *[f"A{at}: {'b' * 400}" for at in range(18)]),
    ],
    ids=["one header", "many headers", "path", "no end", "together"],
)
async def test_large_heads_are_refused(head: bytes) -> None:
    seen = Seen()
    async with serving(echo(seen)) as server, connected(server) as (reader, writer):
        writer.write(head)
        told = await until_closed(reader)
    assert told.startswith(b"HTTP/1.1 431 ")
    assert str(QUICK.head_bytes).encode() in told
    assert not seen.begun.is_set()


async def test_an_upgrade_is_not_taken() -> None:
    async with serving(echo(Seen())) as server, connected(server) as (reader, writer):
        lines = ("Upgrade: websocket", "Connection: Upgrade, close", "Sec-WebSocket-Version: 13")
        writer.write(request("GET", "/", *lines))
        told = await until_closed(reader)
    assert told.startswith(b"HTTP/1.1 200 ")
