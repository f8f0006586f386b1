"""Where a token spent its time is told with it, when it was asked for, stage by stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from diffuse_core.domain import waterfall
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.members import Member
from diffuse_core.domain.records import Record
from diffuse_core.services.pass_clock import round_trips
from tests.services.hand_client import HandClient
from tests.services.test_reroute import hosts_of
from tests.services.tiny_model import ids
from tests.services.waiting import until

if TYPE_CHECKING:
    from diffuse_core.domain.messages import OpenSession
    from tests.services.cluster import Cluster, Host

PROMPT = 13


class TimedClient(HandClient):
    """Asks for times."""

    timed = True

    def opening(self, host: Host) -> OpenSession:
        return msgspec.structs.replace(super().opening(host), timed=self.timed)


@pytest.mark.parametrize("stages", [1, 3])
async def test_each_stage_adds_its_times(cluster: Cluster, stages: int) -> None:
    hosts = await hosts_of(cluster, stages)
    for host in hosts:
        host.service.stage.round_trip = lambda _node: 0.002
    client = TimedClient(cluster, ids(PROMPT), max_tokens=9)
    await client.open(hosts)
    await client.feed(0, PROMPT)
    await until(lambda: client.finish)
    for told in client.told:
        times = waterfall.read(told.marks, stages)
        assert len(times) == stages
        assert all(time.compute_ms > 0 for time in times)
        # Half the round trip at least; nothing is known of the way of what the client sent.
        assert all(time.wire_ms >= 1 for time in times[1:])
    if stages > 1:
        assert all(waterfall.read(told.marks, 3)[0].wire_ms >= 1 for told in client.told[1:])
    await client.close()
    for host in hosts:
        await host.idle()


async def test_nothing_is_told_that_was_not_asked_for(cluster: Cluster) -> None:
    hosts = await hosts_of(cluster, 3)
    client = TimedClient(cluster, ids(PROMPT), max_tokens=9)
    client.timed = False
    await client.open(hosts)
    await client.feed(0, PROMPT)
    await until(lambda: client.finish)
    assert not any(told.marks for told in client.told)
    await client.close()


async def test_times_go_on_after_another_route(cluster: Cluster) -> None:
    *hosts, spare = await hosts_of(cluster, 4)
    client = TimedClient(cluster, ids(PROMPT), max_tokens=12, credits=4)
    await client.open(hosts)
    await client.feed(0, PROMPT)
    await until(lambda: len(client.tokens) == 4)
    cluster.crash(hosts[1])
    hosts[1] = spare
    await client.resume(await client.reroute(hosts))
    await client.grant(40)
    await until(lambda: client.finish)
    late = [waterfall.read(told.marks, 3) for told in client.told[6:]]
    assert all(len(times) == 3 for times in late)
    await client.close()
    for host in hosts:
        await host.idle()


@pytest.mark.slow
async def test_round_trips_are_those_that_the_node_measured(cluster: Cluster) -> None:
    one, other = await hosts_of(cluster, 2)
    await until(lambda: one.service.stage.round_trip(other.id) > 0.0)
    assert one.service.stage.round_trip(other.id) < 10.0
    assert one.service.stage.round_trip(b"?" * 32) == 0.0


def test_the_way_is_told_by_the_shortest_round_trip() -> None:
    """The usual one is long while a node is busy: loading its slice, say."""
    known, far = (
        Member(
            record=Record(node, 1, "host", "test"), liveness="alive", heard_at=0.0, distance_s=0.03
        )
        for node in (NodeId(b"1" * 32), NodeId(b"2" * 32))
    )
    known = msgspec.structs.replace(known, rtt_s=0.1, least_rtt_s=0.002)
    round_trip = round_trips(lambda: (known, far))
    assert round_trip(known.record.node) == 0.002
    assert round_trip(far.record.node) == 0.03
    assert round_trip(NodeId(b"3" * 32)) == 0.0
