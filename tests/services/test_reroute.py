"""A session is led along another route: the same tokens, and nobody but the new stage repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.domain.messages import (
    CloseSession,
    ForwardHidden,
    ForwardTokens,
    Reroute,
    Resume,
    SessionAlive,
    SessionFailed,
    WatchSession,
)
from diffuse_core.domain.session import common_name
from diffuse_core.services import stage, stage_run
from tests.services.hand_client import SESSION, Counted, HandClient
from tests.services.tiny_model import ids
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel

PROMPT, COUNT, CREDITS = 45, 24, 6


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a prompt that go as long passes; time for a client that never says it lives."""
    monkeypatch.setattr(stage_run, "PREFILL_ROWS", 12)
    for name in ("SILENT_S", "GONE_S"):
        monkeypatch.setattr(stage_run, name, 60.0)


def load(*given: object) -> Counted:
    return Counted(load_slice(*given))


async def hosts_of(cluster: Cluster, count: int) -> list[Host]:
    """Hosts that hold the whole model and count what they run."""
    late = [await cluster.host(load=load, wait=False) for _ in range(count)]
    await cluster.settled(*late)
    return late


def ran(host: Host) -> list[int]:
    return host.executors[-1].rows


async def rests(client: HandClient, rows: int) -> None:
    """Wait until every stage has run and sent all there is."""
    for host in client.hosts:
        while (await client.alive(host)).ran < rows:
            pass


async def said(client: HandClient, tiny: TinyModel) -> None:
    """Let it end, and see that it said what it should."""
    await client.grant(COUNT)
    await until(lambda: client.finish is not None)
    assert tuple(client.tokens) == tiny.says(ids(PROMPT), COUNT, ignore_eos=True)
    assert client.finish == "length"
    await client.close()
    for host in client.hosts:
        await host.idle()


def once(hosts: Sequence[Host], rows: int = PROMPT + COUNT - 1) -> None:
    """Each of these hosts ran each row once."""
    for host in hosts:
        assert ran(host) == list(range(rows))


def wish(**more: object) -> dict[str, object]:
    return {"max_tokens": COUNT, "credits": CREDITS, **more}


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.parametrize("fed", [24, PROMPT])
async def test_only_the_lost_stage_computes_again(
    cluster: Cluster, tiny: TinyModel, victim: int, fed: int
) -> None:
    *hosts, spare = await hosts_of(cluster, 4)
    client = HandClient(cluster, ids(PROMPT), **wish())
    await client.open(hosts)
    await client.feed(0, fed)
    rows = fed if fed < PROMPT else PROMPT + CREDITS - 1
    await rests(client, rows)
    cluster.crash(hosts[victim])
    neighbours = {(victim - 1) % 3, (victim + 1) % 3}
    for _ in neighbours:
        failed = await client.answer(SessionFailed)
        assert (failed.node, failed.kept, failed.epoch) == (hosts[victim].id, True, 0)
    survivors = [host for host in hosts if host is not hosts[victim]]
    assert [host.service.stage.sessions for host in survivors] == [1, 1]
    hosts[victim] = spare
    held = await client.reroute(hosts)
    assert [held[host] for host in survivors] == [rows, rows]
    await client.resume(held)
    await said(client, tiny)
    once(hosts)


@pytest.mark.slow
async def test_two_stages_lost_at_once(cluster: Cluster, tiny: TinyModel) -> None:
    *hosts, spare, other = await hosts_of(cluster, 5)
    client = HandClient(cluster, ids(PROMPT), **wish())
    await client.open(hosts)
    await client.feed(0, PROMPT)
    await rests(client, PROMPT + CREDITS - 1)
    for lost in (0, 2):
        cluster.crash(hosts[lost])
    hosts[0], hosts[2] = spare, other
    await client.resume(await client.reroute(hosts))
    await said(client, tiny)
    once(hosts)


@pytest.mark.slow
async def test_a_loss_while_the_session_is_rerouted(cluster: Cluster, tiny: TinyModel) -> None:
    """The next epoch begins before the first was resumed."""
    *hosts, spare, other = await hosts_of(cluster, 5)
    client = HandClient(cluster, ids(PROMPT), **wish())
    await client.open(hosts)
    await client.feed(0, PROMPT)
    await rests(client, PROMPT + CREDITS - 1)
    cluster.crash(hosts[1])
    await client.reroute([hosts[0], spare, hosts[2]])
    cluster.crash(spare)
    hosts[1] = other
    await client.resume(await client.reroute(hosts))
    await said(client, tiny)
    once(hosts)


async def test_the_same_stages_go_on_after_a_lost_link(cluster: Cluster, tiny: TinyModel) -> None:
    """Nobody died: nothing at all is computed again."""
    hosts = await hosts_of(cluster, 3)
    client = HandClient(cluster, ids(PROMPT), **wish())
    await client.open(hosts)
    await client.feed(0, PROMPT)
    await rests(client, PROMPT + CREDITS - 1)
    await hosts[0].node.links.find(hosts[1].id).close()
    for _ in range(2):
        assert (await client.answer(SessionFailed)).kept
    await client.resume(await client.reroute(hosts))
    await said(client, tiny)
    once(hosts)


async def test_rows_that_wait_are_forgotten_and_come_again(
    cluster: Cluster, tiny: TinyModel
) -> None:
    """Rerouted while the prompt is under way: a pass that was begun is not begun again."""
    hosts = await hosts_of(cluster, 3)
    client = HandClient(cluster, ids(PROMPT), **wish())
    await client.open(hosts)
    await client.feed(0, PROMPT)
    await until(lambda: ran(hosts[0]))
    held = await client.reroute(hosts)
    assert all(rows % 12 == 0 or rows == PROMPT for rows in held.values())
    await client.resume(held)
    await said(client, tiny)
    once(hosts)


async def test_a_client_comes_back_over_another_link(cluster: Cluster, tiny: TinyModel) -> None:
    """What the last stage drew meanwhile is told again."""
    hosts = await hosts_of(cluster, 3)
    client = HandClient(cluster, ids(PROMPT), **wish(credits=1))
    await client.open(hosts)
    await client.feed(0, PROMPT)
    await until(lambda: client.tokens)
    (last,) = hosts[-1].service.stage._runs.values()
    link = await client.to(hosts[-1])
    # A token is on its way, and lost with the link that carries it.
    last.state.draws.grant(4)
    lost, plain = [], last.client.send

    async def lose(message: object, *_: object) -> None:
        lost.append(message)

    last.client.send = lose
    await client.grant(1)
    await until(lambda: len(lost) == 5)
    last.client.send = plain
    await link.close()
    await until(lambda: last.gone is not None)
    assert len(client.tokens) == 1
    held = await client.reroute(hosts)
    assert last.gone is None
    assert len(client.tokens) == 6
    await client.resume(held)
    await said(client, tiny)
    once(hosts)


@pytest.mark.slow
async def test_rows_of_an_earlier_route_are_not_listened_to(
    cluster: Cluster, tiny: TinyModel
) -> None:
    hosts = await hosts_of(cluster, 3)
    client = HandClient(cluster, ids(PROMPT), **wish())
    await client.open(hosts)
    await client.feed(0, PROMPT)
    await rests(client, PROMPT + CREDITS - 1)
    held = await client.reroute(hosts)
    # Late ones, of the route before; they would be refused if they were looked at.
    await client.send(hosts[0], ForwardTokens(SESSION, 3, (1,), 0))
    to_next = await hosts[0].node.links.to(hosts[1].id, (hosts[1].address,))
    name = common_name(client.id, SESSION)
    await to_next.send(ForwardHidden(name, 3, 1, (), 0), b"bad")
    await client.send(hosts[1], Reroute(SESSION, 1, client.route[::-1], 1))
    await client.send(hosts[1], Resume(SESSION, 0, 7))
    await client.resume(held)
    await said(client, tiny)
    once(hosts)


@pytest.mark.slow
@pytest.mark.parametrize("paused", [False, True])
async def test_closing_frees_at_once(cluster: Cluster, *, paused: bool) -> None:
    hosts = await hosts_of(cluster, 3)
    client = HandClient(cluster, ids(PROMPT), **wish())
    await client.open(hosts)
    await client.feed(0, PROMPT)
    await rests(client, PROMPT + CREDITS - 1)
    assert all(host.service.stage.kv_used > 0 for host in hosts)
    if paused:
        cluster.memory.cut(hosts[0].id, hosts[1].id)
        await client.answer(SessionFailed)
    for host in hosts:
        await client.send(host, CloseSession(SESSION))
    for host in hosts:
        await host.idle()


async def test_a_session_that_is_only_asked_after_is_freed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold memory for ever, at no cost to whoever opened it."""
    monkeypatch.setattr(stage, "SWEEP_S", 0.01)
    monkeypatch.setattr(stage_run, "IDLE_S", 0.3)
    (host,) = await hosts_of(cluster, 1)
    client = HandClient(cluster, ids(PROMPT), **wish())
    await client.open([host])
    answer: object = await client.alive(host)
    while isinstance(answer, SessionAlive):
        await client.send(host, WatchSession(SESSION))
        answer = await client.answer(SessionAlive | SessionFailed)
    assert not answer.kept
    await host.idle()


async def test_a_session_whose_client_is_gone_or_silent_is_freed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "SWEEP_S", 0.01)
    hosts = await hosts_of(cluster, 3)
    client = HandClient(cluster, ids(PROMPT), **wish())
    await client.open(hosts)
    monkeypatch.setattr(stage_run, "GONE_S", 0.2)
    link = await client.to(hosts[0])
    await link.close()
    await until(lambda: hosts[0].service.stage.sessions == 0)
    assert [host.service.stage.sessions for host in hosts] == [0, 1, 1]
    monkeypatch.setattr(stage_run, "SILENT_S", 0.0)
    failed = await client.answer(SessionFailed)
    assert not failed.kept
    for host in hosts:
        await host.idle()
