"""Clients that go away, wait, or take nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from diffuse_core.adapters.openai_server import ApiLimits
from diffuse_core.adapters.openai_server.choices import AHEAD
from tests.adapters.openai_server.fake_answers import FakeAnswers
from tests.adapters.openai_server.web import CHAT, MESSAGES, Told, Web
from tests.services.waiting import until


def body(**fields: Any) -> bytes:
    return msgspec.json.encode({"model": "tiny", "messages": MESSAGES, **fields})


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"n": 3}, {"n": 3, "stream": True}])
async def test_the_generation_ends_when_the_client_goes(fields: dict[str, Any]) -> None:
    answers = FakeAnswers(pause=asyncio.Event())
    leave = asyncio.Event()
    told = Told()
    asking = asyncio.create_task(Web(answers).ask("POST", CHAT, body(**fields), told, leave=leave))
    await until(lambda: answers.running == fields.get("n", 1))
    leave.set()
    async with asyncio.timeout(10):
        await asking
    assert (answers.running, answers.closed) == (0, fields.get("n", 1))
    assert not told.complete


async def test_who_goes_while_waiting_makes_room() -> None:
    answers = FakeAnswers(gate=asyncio.Event())
    web = Web(answers, ApiLimits(at_once=1, waiting=1))
    assert answers.gate is not None
    first = asyncio.create_task(web.chat())
    await until(lambda: answers.running == 1)
    leave = asyncio.Event()
    second = asyncio.create_task(web.ask("POST", CHAT, body(), Told(), leave=leave))
    for _ in range(5):
        await asyncio.sleep(0)
    leave.set()
    await second
    third = asyncio.create_task(web.chat())
    answers.gate.set()
    assert (await first).status == (await third).status == 200
    assert len(answers.requests) == 2


async def test_who_goes_before_the_body_is_here_is_nobody() -> None:
    answers = FakeAnswers()
    sent = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> dict[str, Any]:
        return sent.pop() if sent else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        raise AssertionError(message)

    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": [], "query_string": b""}
    await Web(answers).app(scope, receive, send)
    assert not answers.requests


async def test_a_stream_gets_comments_while_nothing_comes() -> None:
    answers = FakeAnswers(gate=asyncio.Event(), pause=asyncio.Event())
    assert answers.gate is not None
    assert answers.pause is not None
    told = Told()
    web = Web(answers, ApiLimits(heartbeat_s=0.01))
    asking = asyncio.create_task(web.ask("POST", CHAT, body(stream=True), told))
    await until(lambda: len(told.parts) >= 2)
    assert told.status == 200
    assert set(told.parts) == {b": waiting\n\n"}
    answers.gate.set()
    await until(lambda: b"Hello" in told.body)
    before = len(told.parts)
    await until(lambda: len(told.parts) > before + 1)
    assert told.parts[-1] == b": waiting\n\n"
    answers.pause.set()
    await asking
    assert told.lines()[-1] == "data: [DONE]"
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in told.chunks()) == (
        "Hello world"
    )


async def test_a_stream_that_the_end_of_the_server_cuts_says_so() -> None:
    answers = FakeAnswers(pause=asyncio.Event())
    told = Told()
    asking = asyncio.create_task(Web(answers).ask("POST", CHAT, body(stream=True), told))
    await until(lambda: b"Hello" in told.body)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert told.complete
    last = told.chunks()[-1]["error"]
    assert (last["code"], last["type"]) == ("unavailable", "server_error")
    assert "is ending" in last["message"]
    assert b"[DONE]" not in told.body
    assert answers.running == 0


async def test_of_an_answer_that_is_cut_before_it_began_nothing_is_told() -> None:
    answers = FakeAnswers(pause=asyncio.Event())
    told = Told()
    asking = asyncio.create_task(Web(answers).ask("POST", CHAT, body(), told))
    await until(lambda: answers.running == 1)
    asking.cancel()
    await asyncio.wait([asking])
    assert (told.status, answers.running) == (0, 0)


@pytest.mark.parametrize("n", [1, 3])
async def test_a_slow_client_holds_the_generations_back(n: int) -> None:
    answers = FakeAnswers(says=("x",) * 1000)
    taking = asyncio.Event()
    asking = asyncio.create_task(
        Web(answers).ask("POST", CHAT, body(stream=True, n=n), Told(), stuck=taking)
    )
    await until(lambda: answers.tokens)
    for _ in range(2000):
        await asyncio.sleep(0)
    assert answers.tokens <= AHEAD + n
    taking.set()
    assert (await asking).complete
    assert answers.tokens == 1000 * n
