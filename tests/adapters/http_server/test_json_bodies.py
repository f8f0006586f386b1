"""Bodies are JSON, small, flat and few; whatever else is sent is refused before it is decoded."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from diffuse_core.adapters.http_server import HttpLimits, JsonGuard, plain
from diffuse_core.adapters.http_server.json_bodies import json_problem
from tests.adapters.http_server.asking import (
    QUICK,
    Answer,
    Seen,
    ask,
    connected,
    echo,
    post,
    read_answer,
    request,
    say,
    serving,
    until_empty,
    whole_body,
)

CHUNKED = ("Content-Type: application/json", "Transfer-Encoding: chunked")


def chunked(*pieces: bytes) -> bytes:
    sent = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return request("POST", "/", *CHUNKED) + sent + b"0\r\n\r\n"


async def answer_to(data: bytes, seen: Seen | None = None, limits: HttpLimits = QUICK) -> Answer:
    app = JsonGuard(echo(seen or Seen()), limits, plain)
    async with serving(app, limits) as server:
        return await ask(server, data)


@pytest.mark.parametrize(
    "kind",
    [
        [],
        ["Content-Type: text/plain"],
        ["Content-Type: application/x-www-form-urlencoded"],
        ["Content-Type: multipart/form-data; boundary=x"],
        ["Content-Type: application/jsonx"],
        ["Content-Type: text/plain; application/json"],
        ["Content-Type: application/json", "Content-Type: text/plain"],
        ["Content-Type: application/json", "Content-Encoding: gzip"],
    ],
)
async def test_what_a_form_of_a_page_can_send_is_refused(kind: list[str]) -> None:
    seen = Seen()
    answer = await answer_to(request("POST", "/", *kind, body=b"{}"), seen)
    assert answer.status == 415
    assert not seen.begun.is_set()


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
async def test_json_is_taken_whole(kind: str) -> None:
    seen = Seen()
    answer = await answer_to(request("POST", "/", f"Content-Type: {kind}", body=b'{"a": 1}'), seen)
    assert answer.status == 200
    assert seen.bodies == [b'{"a": 1}']


async def test_a_chunked_body_is_taken_whole() -> None:
    seen = Seen()
    assert (await answer_to(chunked(b'{"a"', b": 1", b"}"), seen)).status == 200
    assert seen.bodies == [b'{"a": 1}']


async def test_a_body_too_large_by_its_length_is_not_read() -> None:
    seen = Seen()
    head = request("POST", "/", "Content-Type: application/json", f"Content-Length: {10**9}")
    answer = await answer_to(head, seen)
    assert answer.status == 413
    assert b"1000 bytes" in answer.body
    assert not seen.begun.is_set()


async def test_a_body_too_large_in_chunks_is_not_read_on() -> None:
    """Whoever sends it gets to read why, while more of it is still on its way."""
    app = JsonGuard(echo(Seen()), QUICK, plain)
    async with serving(app) as server, connected(server) as (reader, writer):
        writer.write(request("POST", "/", *CHUNKED))
        piece = b"%x\r\n%s\r\n" % (300, b" " * 300)

        async def go_on() -> None:
            while True:
                writer.write(piece)
                await asyncio.sleep(0.005)

        going = asyncio.create_task(go_on())
        answer = await read_answer(reader)
        # Nor is what still comes taken for ever.
        await until_empty(server)
        going.cancel()
    assert answer.status == 413


async def test_the_largest_body_is_taken() -> None:
    body = json.dumps("a" * 998).encode()
    assert len(body) == QUICK.body_bytes
    assert (await answer_to(post(body))).status == 200
    assert (await answer_to(post(body + b" "))).status == 413


async def test_all_bodies_together_are_bounded() -> None:
    go_on, begun = asyncio.Event(), asyncio.Event()

    async def slow(_scope: object, receive: object, send: object) -> None:
        await whole_body(receive)
        begun.set()
        await go_on.wait()
        await say(send)

    app = JsonGuard(slow, QUICK, plain)
    body = json.dumps("a" * 800).encode()
    async with serving(app) as server:
        first = asyncio.create_task(ask(server, post(body)))
        await begun.wait()
        second = await ask(server, post(body))
        go_on.set()
        assert (await first).status == 200
        third = await ask(server, post(body))
    assert second.status == 503
    assert second.headers["retry-after"] == "1"
    assert third.status == 200


@pytest.mark.parametrize("opener", [b"[", b'{"a":', b'{"a":["b",'])
@pytest.mark.parametrize("depth", [9, 1000, 300_000])
async def test_deep_nesting_is_refused(opener: bytes, depth: int) -> None:
    limits = replace(QUICK, body_bytes=8 * 2**20, bodies_bytes=16 * 2**20, json_values=10**7)
    answer = await answer_to(post(opener * depth), limits=limits)
    assert answer.status == 400
    assert b"nested more than 8 levels" in answer.body


async def test_too_many_values_are_refused() -> None:
    answer = await answer_to(post(b"[" + b"0," * 60 + b"0]"))
    assert answer.status == 400
    assert b"more than 50 values" in answer.body


@pytest.mark.parametrize(
    "value",
    [
        "[[[[[[[[[[[[" * 50,
        ",,,{{{" * 50,
        '\\"[[[[[[[[[[[[,' * 20,
        "\\" * 99 + "[" * 99,
        {"a": [{"b": [{"c": [1, {"d": "[["}]}]}]},
    ],
)
def test_what_is_in_strings_does_not_count(value: object) -> None:
    assert json_problem(json.dumps(value).encode(), 8, 50) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"[[[[[[[[]]]]]]]]", None),
        (b"[[[[[[[[[]]]]]]]]]", "nested"),
        (b"[],[],[],[],[],[],[],[],[],[],[]", None),
        (b'"\\"[[[[[[[[[[[["', None),
        (b'"\\\\"[[[[[[[[[[[[', "nested"),
        (b'"unfinished [[[[[[[[[[[[', "nested"),
        (b"{" + b'"a":1,' * 60 + b"}", "values"),
        (b"", None),
    ],
)
def test_levels_and_values_are_counted_outside_of_strings(
    text: bytes, problem: str | None
) -> None:
    found = json_problem(text, 8, 50)
    assert found is None if problem is None else problem in (found or "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'"' + b"\\n" * 1_000_000, None),
        (b'"' * 2_000_000 + b"[" * 65, "values"),
        (b'"' + b"[" * 2_000_000 + b'"', None),
        (b'"' + b"[" * 2_000_000, "nested"),
        (b"[]" * 1_000_000, "values"),
    ],
    ids=["escapes", "quotes", "brackets in a string", "brackets", "lists"],
)
def test_megabytes_of_the_worst_are_looked_through(text: bytes, problem: str | None) -> None:
    found = json_problem(text, 64, 50_000)
    assert found is None if problem is None else problem in (found or "")
