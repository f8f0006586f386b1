"""How far a node is, and what its clock shows: asked over a link, by somebody unknown."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from diffuse_core.cli.doctor import looking
from diffuse_core.domain.messages import Ack
from diffuse_core.errors import Unreachable
from diffuse_core.services import probing, reservations
from diffuse_core.services.probing import Prober

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.services.cluster import Cluster


@pytest.fixture(autouse=True)
def soon_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is met at a sentinel looks for one at once."""
    monkeypatch.setattr(reservations, "LOOK_S", 0.02)


async def asked(cluster: Cluster) -> tuple[Prober, object]:
    sentinel = await cluster.start_sentinel()
    observer = await cluster.observer()
    link = await observer.links.to(sentinel.id, observer.addresses(sentinel.id))
    return Prober(observer.links, observer.clock, random.Random(1)), link


async def test_a_node_tells_its_time_and_how_far_it_is(cluster: Cluster) -> None:
    prober, link = await asked(cluster)
    found = await prober.probe(link)
    assert found is not None
    assert 0 < found.rtt_s < 1
    assert found.ahead_s is not None
    assert abs(found.ahead_s) < 1, "both are this machine's"


async def test_a_clock_that_is_ahead_is_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    prober, link = await asked(cluster)
    behind = prober._clock.wall() - 7200
    monkeypatch.setattr(prober._clock, "wall", lambda: behind, raising=False)
    found = await prober.probe(link, times=1)
    assert found is not None
    assert found.ahead_s == pytest.approx(7200, abs=5)


async def test_who_does_not_answer_is_not_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    prober, link = await asked(cluster)
    monkeypatch.setattr(probing, "PROBE_S", 0.01)
    sent: list[bytes] = []

    async def swallow(frame: bytes) -> None:
        sent.append(frame)

    link._channel.send = swallow  # type: ignore[attr-defined]
    assert await prober.probe(link, times=5) is None
    assert len(sent) == 1, "all the others would be waited for as long"
    assert not prober._waiting


async def test_an_answer_to_nothing_is_passed_over(cluster: Cluster) -> None:
    prober, link = await asked(cluster)
    await prober._on_ack(link, Ack(7), memoryview(b""))
    assert await prober.probe(link, times=1) is not None


async def test_whether_a_sentinel_relays_is_tried(split: Callable) -> None:
    cluster = await split(1, relayed=True)
    observer = await cluster.observer()
    (sentinel,) = (node.id for node in cluster.nodes if node.id in cluster.relays)
    assert await looking._relays(observer, sentinel) is True
    (host,) = cluster.hosts
    assert await looking._relays(observer, host.id) is None, "nobody is met through it"


async def test_a_relay_that_leads_nowhere_is_told(
    split: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await split(1, relayed=True)
    observer = await cluster.observer()
    (sentinel,) = (node.id for node in cluster.nodes if node.id in cluster.relays)

    async def in_vain(*_: object) -> None:
        raise Unreachable("gone")

    monkeypatch.setattr(observer.links, "dial", in_vain)
    assert await looking._relays(observer, sentinel) is False
