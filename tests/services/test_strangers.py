"""Nothing in the network can command a node: every kind of message, sent by a stranger.

Whatever only the owner may send gets one and the same refusal, over every kind of link, and
nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from contextlib import aclosing
from typing import TYPE_CHECKING, get_args

import pytest

from diffuse_core.domain.codec import encode
from diffuse_core.domain.messages import AnyMessage, SessionRefused, WatchSession
from diffuse_core.domain.owner_messages import (
    CancelGenerate,
    Generate,
    Generated,
    NotAllowed,
    OwnerMessage,
    StopNode,
    Subscribe,
    Update,
)
from diffuse_core.domain.relayed_address import RelayedAddress
from diffuse_core.domain.reservations import Candidate
from diffuse_core.domain.view import GenerateRequest, TextDelta
from diffuse_core.services import feed
from diffuse_core.services.circuits import CircuitTransport
from diffuse_core.services.feed import OWNER_ONLY
from diffuse_core.services.links import Links
from diffuse_core.services.relay import RelayService
from diffuse_core.services.reservations import Reservations
from tests.services.kinds import every_kind
from tests.services.tiny_model import words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.ports import Channel
    from diffuse_core.services.links import Link
    from tests.services.cluster import Cluster, Host

ALL_KINDS = get_args(AnyMessage)
TO_OWNERS = (Subscribe, Update, Generate, Generated, CancelGenerate, StopNode)
"""What only an owner sends to a node, and what only a node sends to its owner."""
REFUSAL = NotAllowed(OWNER_ONLY)


class Stranger:
    """Somebody with a link to a host, who keeps all that comes over it."""

    def __init__(self, cluster: Cluster, host: Host) -> None:
        identity = cluster.identity()
        self.host = host
        self.transport = CircuitTransport(cluster.transport(identity), identity.node)
        self.links = Links(self.transport, identity.node)
        self.heard: list[AnyMessage] = []
        self._numbers = itertools.count(1)
        self.link: Link | None = None
        for kind in ALL_KINDS:
            self.links.handle(kind, self._hear)
        cluster.stack.push_async_callback(self.links.close)

    async def _hear(self, _link: Link, message: AnyMessage, _body: memoryview) -> None:
        self.heard.append(message)

    @property
    def refusals(self) -> list[NotAllowed]:
        return [message for message in self.heard if isinstance(message, NotAllowed)]

    async def send(self, *messages: AnyMessage) -> None:
        for message in messages:
            await self.link.send(message)

    async def heard_out(self) -> None:
        """Wait until the host has answered all that we sent: it answers in order."""
        session = next(self._numbers).to_bytes(16)
        await self.send(WatchSession(session))
        await until(lambda: any(getattr(said, "session", b"") == session for said in self.heard))


async def let_in(cluster: Cluster, host: Host) -> str:
    """Let the cluster's sentinel relay to a host; the address that leads there."""
    sentinel, (place,) = cluster.nodes[0], cluster.bootstrap
    relay = RelayService(sentinel, random.Random(2))
    cluster.stack.push_async_callback(relay.close)
    relay.start()
    reservations = Reservations(
        host.node,
        cluster.transport(host.node.identity),
        lambda: [Candidate(sentinel.id, (place,))],
        random.Random(3),
    )
    cluster.stack.push_async_callback(reservations.close)
    reservations.start()
    await until(reservations.held)
    return str(RelayedAddress(sentinel.id, place))


@pytest.fixture(params=["memory", "sockets", "relayed", "relayed over sockets"])
async def place(request: pytest.FixtureRequest, split: Callable) -> tuple[Cluster, Stranger]:
    cluster = await split(1, sockets="sockets" in request.param)
    host = cluster.hosts[0]
    relayed = "relayed" in request.param
    address = await let_in(cluster, host) if relayed else host.address
    stranger = Stranger(cluster, host)
    stranger.link = await stranger.links.dial(address, host.id)
    assert (stranger.link.relayed_through is not None) is relayed
    return cluster, stranger


def state(host: Host) -> tuple[object, ...]:
    service = host.service
    return (
        host.node.holding,
        service.slice,
        service.phase_text(),
        service.ready.is_set(),
        service.stage.sessions,
        service.stage.kv_used,
        host.ending.asked.is_set(),
        host.life.done(),
    )


def test_the_table_has_every_kind() -> None:
    sent = [type(message) for message in every_kind()]
    assert sorted(sent, key=str) == sorted(ALL_KINDS, key=str)
    assert set(TO_OWNERS) | {NotAllowed} == set(get_args(OwnerMessage))


async def test_no_message_of_a_stranger_commands_a_node(
    place: tuple[Cluster, Stranger], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, stranger = place
    host = stranger.host
    before = state(host)
    generated: list[object] = []
    monkeypatch.setattr(host.client, "generate", generated.append)
    for message in every_kind():
        stranger.heard.clear()
        await stranger.send(message)
        await stranger.heard_out()
        wanted = [REFUSAL] if isinstance(message, TO_OWNERS) else []
        assert stranger.refusals == wanted, message
        assert not any(isinstance(answer, Update | Generated) for answer in stranger.heard)
        assert state(host) == before, message
    assert generated == []
    assert not stranger.link.closed


async def test_the_refusal_is_the_same_whatever_the_node_does(
    place: tuple[Cluster, Stranger],
) -> None:
    """Not even whether a request of the owner's runs can be found out."""
    cluster, stranger = place
    host = stranger.host
    owner = await cluster.attach(host)
    request = GenerateRequest(model="tiny", raw=words(13), max_tokens=30, ignore_eos=True)
    async with aclosing(owner.generate(request)) as stream:
        await anext(event async for event in stream if isinstance(event, TextDelta))
        await stranger.send(*(CancelGenerate(number) for number in range(4)))
        await stranger.send(Generate(1, request), StopNode(0.0), StopNode())
        rest = [event async for event in stream]
    assert sum(isinstance(event, TextDelta) for event in rest) > 5
    await stranger.heard_out()
    assert stranger.refusals == [REFUSAL] * 7
    assert not host.ending.asked.is_set()
    await host.idle()


async def test_a_flood_of_a_stranger_leaves_nothing(
    place: tuple[Cluster, Stranger],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(feed, "TICK_S", 0.01)
    cluster, stranger = place
    host = stranger.host
    caplog.set_level(logging.INFO, "diffuse_core.services.feed")
    owner = await cluster.attach(host)
    async with aclosing(owner.updates()) as updates:
        first = await anext(updates)
        flood = [message for message in every_kind() if isinstance(message, TO_OWNERS)]
        for _ in range(50):
            await stranger.send(*flood)
            # The owner is heard meanwhile.
            latest = await anext(updates)
        await stranger.heard_out()
    assert stranger.refusals == [REFUSAL] * (50 * len(flood))
    said = [r.getMessage() for r in caplog.records if r.name == "diffuse_core.services.feed"]
    assert len(said) == 1
    assert stranger.links._own.hex()[:8] in said[0]
    assert stranger.links._own.hex()[:12] not in said[0]
    assert not any("owner" in event.text for event in host.node.events)
    assert latest.telemetry.tasks <= first.telemetry.tasks + 5
    assert not host.ending.asked.is_set()


async def flood_until_it_blocks(channel: Channel) -> None:
    with contextlib.suppress(TimeoutError):
        for _ in range(100_000):
            async with asyncio.timeout(0.3):
                await channel.send(encode(Subscribe()))
        raise AssertionError("what nobody reads is kept without end")


async def test_a_stranger_who_does_not_listen_holds_up_only_itself(split: Callable) -> None:
    cluster = await split(1)
    host = cluster.hosts[0]
    channel = await cluster.transport(cluster.identity()).dial(host.address, host.id, 5.0)
    cluster.stack.push_async_callback(channel.close)
    await flood_until_it_blocks(channel)
    owner = await cluster.attach(host)
    async with asyncio.timeout(10), aclosing(owner.updates()) as updates:
        assert (await anext(updates)).telemetry.stage == "ready"
    await channel.close()
    await until(lambda: len(host.node.links.linked()) <= 2)


async def test_sessions_are_all_that_a_stranger_may_ask_of_a_host(
    place: tuple[Cluster, Stranger],
) -> None:
    """The control of this file: what is no command is answered, not refused as one."""
    _, stranger = place
    opening = next(message for message in every_kind() if hasattr(message, "budget"))
    await stranger.send(opening)
    await until(lambda: any(isinstance(said, SessionRefused) for said in stranger.heard))
    assert stranger.refusals == []
