"""What hostile nodes may ask of a stage: refused or ignored, and nobody else is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.admission import MAX_SESSIONS
from diffuse_core.domain.messages import (
    CloseSession,
    Credit,
    ForwardTokens,
    Hop,
    OpenSession,
    SessionFailed,
    SessionOpened,
    SessionRefused,
    TokensDrawn,
)
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.services import stage_run
from tests.services.intruder import CREDITS, SESSION, Intruder, hidden
from tests.services.tiny_model import CONTEXT, LAYERS, ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.services.links import Link
    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel


async def test_a_stranger_cannot_touch_a_session(pair: Cluster, running: bytes) -> None:
    intruder = Intruder(pair)
    for host in pair.hosts:
        link = await intruder.to(host)
        for position in (0, 13, 13 + CREDITS, 13 + CREDITS - 1):
            await link.send(ForwardTokens(running, position, (1,)))
            await link.send(*hidden(1, position=position, session=running))
        await link.send(Credit(running, 4000))
        await link.send(CloseSession(running))
        await link.send(SessionFailed(running, host.id, "lost", "so say I"))
        await link.send(TokensDrawn(running, 13, (1,)))
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
    await to_last.send(ForwardTokens(running, 13 + CREDITS - 1, (1,)))
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
    pair: Cluster, running: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_run, "GONE_S", 0.2)
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
    assert (answer.node, answer.reason, answer.kept) == (absent, "lost", True)
    assert "mem:4444" in answer.detail
    await (await intruder.to(host)).send(CloseSession(SESSION))
    await intruder.heard(host)


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
