"""When audits are made: after the answer is complete, and on the way of a long one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.view import Audited, Finished, GenerateRequest, TextDelta
from diffuse_core.services import audit
from diffuse_core.services.audit_case import AuditCase
from tests.services.audit_net import AuditNet, changed, scaled
from tests.services.tiny_model import ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from diffuse_core.services.generation import Generation
    from tests.services.cluster import Cluster
    from tests.services.tiny_model import TinyModel

EARLY, COUNT = 10, 60


def ask(**options: object) -> GenerateRequest:
    return GenerateRequest(model="tiny", raw=words(21), max_tokens=20, ignore_eos=True, **options)


@pytest.fixture
async def pairs(cluster: Cluster) -> Cluster:
    """Two hosts for each half."""
    for cap in (5, 5):
        await cluster.host(cap)
    late = [await cluster.host(5, wait=False) for _ in range(2)]
    await cluster.settled(*late)
    return cluster


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> list[AuditCase]:
    """Audits that never come to an end."""
    begun: list[AuditCase] = []

    async def judge(case: AuditCase) -> Audited:
        begun.append(case)
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(AuditCase, "judge", judge)
    return begun


async def test_an_answer_is_complete_before_it_is_audited(
    pairs: Cluster, endless: list[AuditCase]
) -> None:
    client = await pairs.client()
    async with aclosing(client.generate(ask(audit=1.0))) as events:
        async for event in events:
            if isinstance(event, Finished):
                break
        assert (event.finish_reason, event.audits) == ("length", 2)
        assert event.usage.completion_tokens == 20
        assert endless == []
        rest = asyncio.ensure_future(anext(events))
        await until(lambda: len(endless) == 1)
        # Whoever wants no more of it ends it at any time.
        rest.cancel()
        await asyncio.wait([rest])
    for host in pairs.hosts:
        await host.idle()


async def test_audits_take_no_longer_than_they_may(
    pairs: Cluster, endless: list[AuditCase], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "AUDIT_S", 0.02)
    client = await pairs.client()
    events = [event async for event in client.generate(ask(audit=1.0))]
    (at,) = [at for at, event in enumerate(events) if isinstance(event, Finished)]
    told = events[at + 1 :]
    assert [found.verdict for found in told] == ["unaudited"] * 2
    assert all("given up" in found.reason for found in told)
    assert [found.node for found in told] == [step.node for step in events[at].route]


@pytest.fixture
async def net(tiny: TinyModel, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AuditNet]:
    monkeypatch.setattr(audit, "ON_THE_WAY", EARLY)
    async with AsyncExitStack() as stack:
        net = AuditNet(stack, tiny)
        await net.populate(3)
        yield net
        await net.idle()


@pytest.mark.slow
async def test_a_liar_in_a_long_answer_is_found_on_the_way(net: AuditNet) -> None:
    liars: list[str] = []

    def lie(generation: Generation) -> None:
        liar = net.on(generation, 1)
        liar.executor.spoil = changed(scaled)
        liars.append(liar.id.hex())

    await net.answer(ids(30), COUNT, before=lie, until=EARLY, speculate=False)
    (told,) = net.early
    assert list(told.quarantined) == liars
    assert told.rows < 30 + COUNT // 2
    # That is told once; the others are audited whole.
    assert liars[0] not in {found.node for found in net.told}
    assert [found.verdict for found in net.told] == ["agrees", "agrees"]


@pytest.mark.slow
async def test_of_an_honest_answer_nothing_is_told_on_the_way(net: AuditNet) -> None:
    await net.answer(ids(30), COUNT, until=EARLY, speculate=False)
    assert net.early == []
    assert [found.verdict for found in net.told] == ["agrees"] * 3
    assert {found.rows for found in net.told} == {30 + COUNT - 1}


async def test_the_first_audit_on_the_way_comes_with_the_tokens_it_takes(
    pairs: Cluster, endless: list[AuditCase], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "ON_THE_WAY", 5)
    client = await pairs.client()
    begun: list[int] = []
    async with aclosing(client.generate(ask(audit=1.0, speculate=False))) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                await asyncio.sleep(0)
                begun.append(len(endless))
            elif isinstance(event, Finished):
                break
    assert begun[0] == 0
    assert begun[-1] == 1
    for host in pairs.hosts:
        await host.idle()


async def test_an_audit_that_does_not_end_keeps_nothing_of_the_answer(
    pairs: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the last word to a replica waits for one that reads nothing."""
    monkeypatch.setattr(audit, "ON_THE_WAY", 5)
    begun, let = asyncio.Event(), asyncio.Event()

    async def judge(_: AuditCase) -> Audited:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await let.wait()
        raise AssertionError

    monkeypatch.setattr(AuditCase, "judge", judge)
    client = await pairs.client()
    try:
        async with aclosing(client.generate(ask(audit=1.0, speculate=False))) as events:
            async for event in events:
                if isinstance(event, TextDelta) and begun.is_set():
                    break
        for host in pairs.hosts:
            await host.idle()
    finally:
        let.set()
