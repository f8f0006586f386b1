"""What hostile nodes may ask of a stage: refused or ignored, and nobody else is touched."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.admission import MAX_SESSIONS, MOST_OF_ONE
from diffuse_core.domain.messages import (
    CloseSession,
    Credit,
    ForwardTokens,
    Hop,
    OpenSession,
    RowsRun,
    SessionFailed,
    SessionOpened,
    SessionRefused,
    TokensDrawn,
    WatchSession,
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
    """Nor by what its stages call it, which whoever knows its client's id can tell."""
    intruder = Intruder(pair)
    for host in pair.hosts:
        link = await intruder.to(host)
        (run,) = host.service.stage._runs.values()
        client = run.client.remote
        for position in (0, 13, 13 + CREDITS, 13 + CREDITS - 1):
            await link.send(ForwardTokens(running, position, (1,)))
            await link.send(*hidden(1, position=position, session=running))
            for who in (intruder.id, client):
                rows = hidden(1, position=position, session=running)
                await link.send(*intruder.named(*rows, client=who))
                tokens = ForwardTokens(running, position, (1,))
                await link.send(*intruder.named(tokens, client=who))
                await link.send(*intruder.named(RowsRun(running, 1), client=who))
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
    (name,) = first.service.stage._runs
    for session in (running, name):
        await to_last.send(ForwardTokens(session, 13 + CREDITS - 1, (1,)))
        await to_first.send(*hidden(1, position=13 + CREDITS - 1, session=session))
        await to_last.send(RowsRun(session, 1))
    for link in (to_first, to_last):
        await link.send(Credit(running, 64))
        await link.send(CloseSession(running))
    intruder = Intruder(pair)
    for host in pair.hosts:
        # Two links: let what came over the other be read first.
        for _ in range(3):
            await intruder.heard(host)
        assert host.service.stage.sessions == 1


async def test_two_clients_may_choose_the_same_id(pair: Cluster, running: bytes) -> None:
    """By chance, or to be in the way of others: both are served, neither notices."""
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start > 0)
    link = await intruder.open(host, session=running)
    await link.send(intruder.opening(host, session=running))
    answer = await intruder.answer()
    assert isinstance(answer, SessionRefused)
    assert "already" in answer.detail
    assert host.service.stage.sessions == 2
    await link.send(*intruder.named(*hidden(5, session=running)))
    drawn = await intruder.answer()
    assert isinstance(drawn, TokensDrawn)
    assert (drawn.session, drawn.position) == (running, 5)
    await link.send(WatchSession(running))
    await link.send(CloseSession(running))
    await intruder.heard(host)
    assert host.service.stage.sessions == 1


async def test_an_id_taken_beforehand_is_in_nobodys_way(pair: Cluster, tiny: TinyModel) -> None:
    """Whoever hears of an id first, and opens it elsewhere before the client does."""
    intruder, client = Intruder(pair), await pair.client()
    for host in pair.hosts:
        await intruder.open(host)
    plain = secrets.token_bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_bytes", lambda n: SESSION if n == 16 else plain(n))
        request = GenerateRequest(model="tiny", raw=words(9), max_tokens=6, ignore_eos=True)
        _, tokens, finished = await client.whole(request)
    assert tokens == tiny.says(ids(9), 6, ignore_eos=True)
    assert finished.events == ()
    for host in pair.hosts:
        assert host.service.stage.sessions == 1
        await (await intruder.to(host)).send(CloseSession(SESSION))
        await host.idle()


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
    other = Intruder(pair)
    for one, places in ((intruder, MOST_OF_ONE), (other, MAX_SESSIONS - MOST_OF_ONE - 1)):
        link = await one.to(host)
        for number in range(places + 1):
            await link.send(one.opening(host, session=number.to_bytes(16)))
        answers = [await one.answer() for _ in range(places + 1)]
        assert [type(answer) for answer in answers].count(SessionOpened) == places
        (refused,) = (answer for answer in answers if isinstance(answer, SessionRefused))
        assert refused.reason == "busy"
    for one in (intruder, other):
        pair.memory.cut(one.id, host.id)
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
