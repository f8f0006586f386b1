"""What hostile nodes may send to a stage: refused or ignored, and nobody else is touched."""

from __future__ import annotations

import asyncio
import math
import struct
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec
import pytest

from diffuse_core.domain.decoding import DecodingParams
from diffuse_core.domain.messages import (
    CloseSession,
    Credit,
    ForwardHidden,
    ForwardTokens,
    Hop,
    OpenSession,
    SessionFailed,
    SessionOpened,
    SessionRefused,
    TokenDrawn,
)
from diffuse_core.domain.session import MAX_SESSIONS
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import GenerateRequest, TextDelta
from diffuse_core.services import run, stage
from diffuse_core.services.links import Link, Links
from tests.services.tiny_model import CONTEXT, LAYERS, VOCAB, ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from diffuse_core.domain.messages import AnyMessage
    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel

CREDITS = 8
WIDTH = 32
SESSION = b"h" * 16


@pytest.fixture(autouse=True)
def few_credits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CREDITS", CREDITS)


class Intruder:
    """A node that speaks the protocol, but sends what it likes."""

    def __init__(self, cluster: Cluster) -> None:
        identity = cluster.identity()
        self.id = identity.node
        self.links = Links(cluster.transport(identity), self.id)
        self.cluster = cluster
        self.answers: asyncio.Queue[AnyMessage] = asyncio.Queue()
        for kind in (SessionOpened, SessionRefused, SessionFailed, TokenDrawn):
            self.links.handle(kind, self._hear)
        cluster.stack.push_async_callback(self.links.close)

    async def _hear(self, _link: Link, message: AnyMessage, _body: memoryview) -> None:
        self.answers.put_nowait(message)

    async def to(self, host: Host) -> Link:
        return await self.links.to(host.id, (host.address,))

    async def answer(self) -> AnyMessage:
        async with asyncio.timeout(2):
            return await self.answers.get()

    async def heard(self, host: Host) -> None:
        """Wait until the host has read all that we sent: it answers in order."""
        link = await self.to(host)
        await link.send(self.opening(host, session=b"?" * 16, fingerprint="0" * 64))
        answer = await self.answer()
        assert isinstance(answer, SessionRefused)
        assert answer.session == b"?" * 16

    def opening(self, host: Host, **changes: object) -> OpenSession:
        """A sound request for a session through the host's slice, with changes."""
        part = host.service.slice
        route = [Hop(host.id, (host.address,), part)]
        if part.start > 0:
            route.insert(0, Hop(self.id, (), Slice(0, part.start)))
        if part.end < LAYERS:
            route.append(Hop(self.id, (), Slice(part.end, LAYERS)))
        sound = OpenSession(
            SESSION,
            "tiny",
            host.service.model.fingerprint,
            tuple(route),
            0 if part.start == 0 else 1,
            40,
            5,
            DecodingParams(20),
            20,
        )
        return msgspec.structs.replace(sound, **changes)

    async def open(self, host: Host, **changes: object) -> Link:
        link = await self.to(host)
        await link.send(self.opening(host, **changes))
        answer = await self.answer()
        assert isinstance(answer, SessionOpened), answer
        return link


@pytest.fixture
async def pair(split: Callable) -> Cluster:
    return await split(2)


@pytest.fixture
async def running(pair: Cluster, tiny: TinyModel) -> AsyncIterator[bytes]:
    """The id of an honest session that waits for credit; it must end as if nothing had been."""
    client = await pair.client()
    request = GenerateRequest(model="tiny", raw=words(13), max_tokens=40, ignore_eos=True)
    async with aclosing(client.generate(request)) as stream:
        tokens: list[int] = []
        while not tokens:
            event = await anext(stream)
            if isinstance(event, TextDelta):
                tokens.extend(event.token_ids)
        states = [next(iter(host.service.stage._runs.values())).state for host in pair.hosts]
        await until(lambda: states[1].drawn == CREDITS)
        before = [(state.received, state.drawn) for state in states]
        yield states[0].id
        assert [(state.received, state.drawn) for state in states] == before
        async for event in stream:
            if isinstance(event, TextDelta):
                tokens.extend(event.token_ids)
    assert tuple(tokens) == tiny.says(ids(13), 40, ignore_eos=True)
    for host in pair.hosts:
        await host.idle()


def hidden(
    rows: int,
    width: int = WIDTH,
    *,
    position: int = 0,
    session: bytes = SESSION,
    number: float = 0.5,
    body: bytes | None = None,
    dtype: str = "fp32",
) -> tuple[ForwardHidden, bytes]:
    data = struct.pack("<f", number) * rows * width if body is None else body
    return ForwardHidden(session, position, rows, width, dtype, want_token=True), data


async def test_a_stranger_cannot_touch_a_session(pair: Cluster, running: bytes) -> None:
    intruder = Intruder(pair)
    for host in pair.hosts:
        link = await intruder.to(host)
        for position in (0, 13, 13 + CREDITS, 13 + CREDITS - 1):
            await link.send(ForwardTokens(running, position, (1,), want_token=True))
            await link.send(*hidden(1, position=position, session=running))
        await link.send(Credit(running, 4000))
        await link.send(CloseSession(running))
        await link.send(SessionFailed(running, host.id, "lost", "so say I"))
        await link.send(TokenDrawn(running, 13, 1))
        await intruder.heard(host)
        await link.close()
        assert host.service.stage.sessions == 1


async def test_stages_of_a_session_take_only_what_their_place_gives(
    pair: Cluster, running: bytes
) -> None:
    """The last stage feeds the first, the first the last: nothing else, nor the other way."""
    first, last = pair.hosts
    if first.service.slice.start > 0:
        first, last = last, first
    to_last = await first.node.links.to(last.id, (last.address,))
    to_first = await last.node.links.to(first.id, (first.address,))
    await to_last.send(ForwardTokens(running, 13 + CREDITS - 1, (1,), want_token=True))
    await to_first.send(*hidden(1, position=13 + CREDITS - 1, session=running))
    for link in (to_first, to_last):
        await link.send(Credit(running, 64))
        await link.send(CloseSession(running))
    intruder = Intruder(pair)
    for host in pair.hosts:
        # Two links: let what came over the other be read first.
        for _ in range(3):
            await intruder.heard(host)
        assert host.service.stage.sessions == 1


async def test_a_session_id_in_use_is_refused(pair: Cluster, running: bytes) -> None:
    intruder = Intruder(pair)
    for host in pair.hosts:
        link = await intruder.to(host)
        await link.send(intruder.opening(host, session=running))
        answer = await intruder.answer()
        assert isinstance(answer, SessionRefused)
        assert "in use" in answer.detail


def _hops(*parts: tuple[int, int]) -> Callable[[Intruder, Host], tuple[Hop, ...]]:
    def make(intruder: Intruder, host: Host) -> tuple[Hop, ...]:
        return tuple(
            Hop(
                host.id if Slice(*part) == host.service.slice else bytes([n]) * 32,
                (),
                Slice(*part),
            )
            for n, part in enumerate(parts)
        )

    return make


BROKEN_ROUTES = {
    "gap": (_hops((0, 5), (6, 10)), "jumps"),
    "overlap": (_hops((0, 5), (4, 10)), "jumps"),
    "late start": (_hops((1, 5), (5, 10)), "jumps"),
    "too short": (_hops((0, 5), (5, 9)), "ends at layer 9 of 10"),
    "too long": (_hops((0, 5), (5, 11)), "ends at layer 11 of 10"),
    "beyond": (_hops((0, 5), (5, 10), (10, 12)), "ends at layer 12"),
    "node twice": (
        lambda _, host: tuple(Hop(host.id, (), part) for part in (Slice(0, 5), Slice(5, 10))),
        "twice",
    ),
    "not here": (
        lambda i, host: (Hop(i.id, (), Slice(0, 5)), Hop(host.id, (), Slice(5, 10))),
        "",
    ),
}


@pytest.mark.parametrize("name", BROKEN_ROUTES)
async def test_broken_routes_are_refused(pair: Cluster, running: bytes, name: str) -> None:
    make, words_said = BROKEN_ROUTES[name]
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start == 0)
    used = host.service.stage.kv_used
    await (await intruder.to(host)).send(
        intruder.opening(host, route=make(intruder, host), index=0)
    )
    answer = await intruder.answer()
    assert isinstance(answer, SessionRefused)
    assert words_said in answer.detail
    assert (host.service.stage.sessions, host.service.stage.kv_used) == (1, used)


SENSELESS = {
    "index": ({"index": 7}, "invalid"),
    "weights": ({"fingerprint": "0" * 64}, "model"),
    "context": ({"budget": CONTEXT + 1}, "context"),
    "huge": ({"budget": 2**20}, "context"),
    "prompt": ({"budget": 5, "prompt": 5}, "invalid"),
    "prompt beyond": ({"prompt": 2**20}, "invalid"),
}


@pytest.mark.parametrize("name", SENSELESS)
async def test_senseless_sessions_are_refused(pair: Cluster, running: bytes, name: str) -> None:
    changes, reason = SENSELESS[name]
    intruder = Intruder(pair)
    for host in pair.hosts:
        used = host.service.stage.kv_used
        await (await intruder.to(host)).send(intruder.opening(host, **changes))
        answer = await intruder.answer()
        assert isinstance(answer, SessionRefused)
        assert answer.reason == reason
        assert (host.service.stage.sessions, host.service.stage.kv_used) == (1, used)


async def test_sessions_are_counted_and_all_go_with_the_link(
    pair: Cluster, running: bytes
) -> None:
    intruder = Intruder(pair)
    host = pair.hosts[0]
    link = await intruder.to(host)
    for number in range(MAX_SESSIONS):
        await link.send(intruder.opening(host, session=number.to_bytes(16)))
    kinds = [type(await intruder.answer()) for _ in range(MAX_SESSIONS)]
    assert kinds.count(SessionOpened) == MAX_SESSIONS - 1
    assert kinds.count(SessionRefused) == 1
    pair.memory.cut(intruder.id, host.id)
    await until(lambda: host.service.stage.sessions == 1)


BAD_TOKENS = {
    "later position": (ForwardTokens(SESSION, 1, (1, 2), want_token=True), "position 1"),
    "beyond the vocabulary": (ForwardTokens(SESSION, 0, (1, VOCAB), want_token=True), "token id"),
    "far beyond": (ForwardTokens(SESSION, 0, (2**24,), want_token=True), "token id"),
    "beyond the budget": (ForwardTokens(SESSION, 0, (1,) * 41, want_token=True), "budget"),
    "a very long prompt": (ForwardTokens(SESSION, 0, (1,) * 8192, want_token=True), "budget"),
}


@pytest.mark.parametrize("name", BAD_TOKENS)
async def test_bad_tokens_end_only_their_session(pair: Cluster, running: bytes, name: str) -> None:
    message, said = BAD_TOKENS[name]
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start == 0)
    link = await intruder.open(host)
    await link.send(message)
    answer = await intruder.answer()
    assert isinstance(answer, SessionFailed)
    assert answer.reason == "invalid"
    assert said in answer.detail
    assert host.service.stage.sessions == 1


async def test_rows_cannot_come_twice(pair: Cluster, running: bytes) -> None:
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start == 0)
    link = await intruder.open(host)
    await link.send(ForwardTokens(SESSION, 0, (1, 2), want_token=False))
    await link.send(ForwardTokens(SESSION, 0, (1, 2), want_token=False))
    answer = await intruder.answer()
    assert isinstance(answer, SessionFailed)
    assert "2 was next" in answer.detail


BAD_HIDDEN = {
    "width": (hidden(2, WIDTH + 1), "do not fit"),
    "one wide": (hidden(2, 1), "do not fit"),
    "too few bytes": (hidden(2, body=bytes(4 * 2 * WIDTH - 1)), "do not fit"),
    "too many bytes": (hidden(2, body=bytes(4 * 2 * WIDTH + 4)), "do not fit"),
    "no bytes": (hidden(2, body=b""), "do not fit"),
    "another type": (hidden(2, dtype="bf16", body=bytes(2 * 2 * WIDTH)), "do not fit"),
    "NaN": (hidden(2, number=math.nan), "NaN"),
    "infinity": (hidden(2, number=math.inf), "NaN or infinity"),
    "later position": (hidden(2, position=3), "position 3"),
    "beyond the budget": (hidden(41), "budget"),
    "more than a pass takes": (hidden(600), "do not fit"),
}


@pytest.mark.parametrize("name", BAD_HIDDEN)
async def test_bad_hidden_states_end_only_their_session(
    pair: Cluster, running: bytes, name: str
) -> None:
    (message, body), said = BAD_HIDDEN[name]
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start > 0)
    link = await intruder.open(host)
    await link.send(message, body)
    answer = await intruder.answer()
    assert isinstance(answer, SessionFailed)
    assert answer.reason == "invalid"
    assert said in answer.detail
    assert host.service.stage.sessions == 1
    # Sound ones are taken, so it was not the test that was broken.
    await intruder.open(host)
    await link.send(*hidden(5))
    assert isinstance(await intruder.answer(), TokenDrawn)
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)


async def test_a_flood_of_rows_ends_its_session(
    pair: Cluster, running: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "MAX_INBOX", 4)
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start == 0)
    link = await intruder.open(host)
    for position in range(30):
        await link.send(ForwardTokens(SESSION, position, (1,), want_token=False))
    answer = await intruder.answer()
    assert isinstance(answer, SessionFailed)
    assert "too many rows" in answer.detail


async def test_a_token_out_of_turn_does_not_break_a_single_stage(
    split: Callable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client feeds rows by itself while the ring of its session runs within the stage."""
    monkeypatch.setattr(stage, "MAX_INBOX", 2)
    cluster = await split(1)
    intruder = Intruder(cluster)
    link = await intruder.open(cluster.hosts[0], credits=1)
    await link.send(ForwardTokens(SESSION, 0, ids(5), want_token=True))
    assert isinstance(await intruder.answer(), TokenDrawn)
    await link.send(ForwardTokens(SESSION, 5, (1,), want_token=True))
    await link.send(Credit(SESSION, 10))
    found = [await intruder.answer()]
    while not isinstance(found[-1], SessionFailed):
        found.append(await intruder.answer())
    assert not link.closed
    assert not [record for record in caplog.records if record.exc_info]
    await cluster.hosts[0].idle()


async def test_a_stage_that_cannot_reach_the_next_says_so(pair: Cluster, running: bytes) -> None:
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start == 0)
    absent = bytes([9]) * 32
    route = (
        Hop(host.id, (host.address,), host.service.slice),
        Hop(absent, ("mem:4444",), Slice(host.service.slice.end, LAYERS)),
    )
    await (await intruder.to(host)).send(intruder.opening(host, route=route))
    answer = await intruder.answer()
    assert isinstance(answer, SessionFailed)
    assert (answer.node, answer.reason) == (absent, "lost")
    assert "mem:4444" in answer.detail


async def test_who_blames_a_bystander_is_blamed(pair: Cluster, tiny: TinyModel) -> None:
    client = await pair.client()
    host = pair.hosts[1]
    bystander = pair.nodes[0].id

    async def accuse(link: Link, message: OpenSession, _body: memoryview) -> None:
        await link.send(SessionFailed(message.session, bystander, "lost", "it was them"))

    honest = host.node.links._handlers[OpenSession]
    host.node.links.handle(OpenSession, accuse)
    request = GenerateRequest(model="tiny", raw=words(5), max_tokens=3, ignore_eos=True)
    with pytest.raises(Exception, match=rf"without {host.id.hex()[:8]}"):
        await client.whole(request)
    host.node.links.handle(OpenSession, honest)
    _, tokens, _ = await (await pair.client()).whole(request)
    assert tokens == tiny.says(ids(5), 3, ignore_eos=True)
