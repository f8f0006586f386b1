"""A sentinel that carries handshakes and then nothing costs a host that has another little."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.relayed_address import RelayedAddress
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.services import (
    generation,
    next_watch,
    reachability,
    reservations,
    roll_call,
    ways,
)
from tests.services.tiny_model import ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.ports import Channel
    from diffuse_core.services.relay import RelayService
    from tests.services.cluster import Cluster
    from tests.services.tiny_model import TinyModel

HANDSHAKE = 4
"""Frames that each end of a circuit is sent before, by and with the handshake."""
HOST, GOOD, BAD = (NodeId(bytes([number]) * 32) for number in (1, 2, 3))


class Mute:
    """The end of a circuit that is sent the handshake, and then nothing more."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._left = HANDSHAKE
        self.remote = channel.remote
        self.receive = channel.receive

    async def send(self, frame: bytes) -> None:
        self._left -= 1
        if self._left >= 0:
            await self._channel.send(frame)


def swallow(relay: RelayService) -> None:
    honest = relay._run

    async def mute(name: object, circuit: object, *rest: object) -> None:
        source, target, first = rest
        await honest(name, circuit, Mute(source), Mute(target), first)

    relay._run = mute


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
async def test_hosts_are_used_through_their_other_sentinel(
    split: Callable, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    for module in (reachability, reservations):
        monkeypatch.setattr(module, "LOOK_S", 0.05)
    monkeypatch.setattr(generation, "MOST_GRACE_S", 10.0)
    monkeypatch.setattr(roll_call, "WATCH_S", 0.3)
    monkeypatch.setattr(roll_call, "SILENT_S", 0.3)
    monkeypatch.setattr(next_watch, "ANSWER_S", 0.2)
    cluster: Cluster = await split(2, relayed=True, relays=2)
    for host in cluster.hosts:
        await until(lambda host=host: len(cluster.nodes[0].addresses(host.id)) == 2)
    swallow(list(cluster.relays.values())[which])
    # The hosts meet again, perhaps there.
    first, second = cluster.hosts
    for link in first.node.links.linked().get(second.id, []):
        await link.close()
    observer = await cluster.observer()
    client = await cluster.client(observer)
    asked = GenerateRequest(model="tiny", raw=words(13), max_tokens=30, ignore_eos=True)
    _, tokens, finished = await client.whole(asked)
    assert tokens == tiny.says(ids(13), 30, ignore_eos=True)
    assert {step.node for step in finished.route} == {first.id.hex(), second.id.hex()}
    # What was learned stays.
    for link in [link for some in observer.links.linked().values() for link in some]:
        await link.close()
    _, tokens, finished = await client.whole(asked)
    assert tokens == tiny.says(ids(13), 30, ignore_eos=True)
    assert not finished.events


async def test_a_bad_way_is_dialled_last_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    over = {one: str(RelayedAddress(one, "192.0.2.1:9440")) for one in (GOOD, BAD)}
    known = ways.Ways()
    places = (over[BAD], over[GOOD], "192.0.2.9:9440")
    assert known.ordered(HOST, places) == ("192.0.2.9:9440", over[BAD], over[GOOD])
    known.add(HOST, BAD)
    ordered = known.ordered(HOST, places)
    assert ordered == ("192.0.2.9:9440", over[GOOD], over[BAD])
    assert known.head_starts(HOST, ordered)[:2] == [ways.LAN_STAGGER_S, ways.BAD_WAY_STAGGER_S]
    assert known.ordered(GOOD, places) == ("192.0.2.9:9440", over[BAD], over[GOOD])
    assert known.head_starts(HOST, (over[BAD],)) == [ways.CIRCUIT_STAGGER_S]
    loop = asyncio.get_running_loop()
    later = loop.time() + ways.BAD_WAY_S
    monkeypatch.setattr(loop, "time", lambda: later)
    assert not known.is_bad(HOST, BAD)


async def test_no_more_bad_ways_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "MAX_BAD_WAYS", 1)
    known = ways.Ways()
    known.add(HOST, BAD)
    known.add(HOST, GOOD)
    assert not known.is_bad(HOST, BAD)
    assert known.is_bad(HOST, GOOD)
