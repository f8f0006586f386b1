"""Machines that are frozen when a session is opened: the first token is not long in coming."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from diffuse_core.errors import ModelIncomplete
from diffuse_core.services.generation import PATIENCE_S
from diffuse_core.services.links import DIAL_ALL_S
from diffuse_core.services.route_choice import RouteChoice
from tests.services import striking
from tests.services.scripted_time import now, played
from tests.services.striking import COUNT, PROMPT, Answer, undisturbed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.ports import Channel
    from tests.services.stage_net import StageHost, StageNet
    from tests.services.tiny_model import TinyModel

pytestmark = pytest.mark.usefixtures("in_pieces")

FIRST_S = 3.0
"""Goal for the first token."""
STAGES = pytest.mark.parametrize("index", [0, 1, 2], ids=["first", "middle", "last"])
WAYS = pytest.mark.parametrize("sentinels", [0, 2], ids=["direct", "relayed"])


def to_be_asked(net: StageNet) -> list[StageHost]:
    """Those that the next answer takes first."""
    choice = RouteChoice(net, net.model, random.Random(1), None)
    route = choice.choose(len(PROMPT) + COUNT + 1)
    return [next(host for host in net.hosts if host.id == hop.node) for hop in route]


async def goes_on(net: StageNet, frozen: Sequence[StageHost], wanted: list[int]) -> float:
    """An answer while hosts are frozen; seconds to its first token."""
    for host in frozen:
        host.freeze()
    began, answer = now(), Answer(net)
    await answer.read()
    assert answer.tokens == wanted
    assert not answer.healed
    assert len(answer.asked.events) == len(frozen)
    for host in frozen:
        assert any(host.id.hex()[:8] in event for event in answer.asked.events)
    await answer.end()
    return answer.came[0] - began


@WAYS
@STAGES
def test_one_that_was_not_met_yet(tiny: TinyModel, index: int, sentinels: int) -> None:
    wanted = undisturbed(tiny)

    async def act(net: StageNet) -> None:
        await striking.hosts(net, sentinels=sentinels)
        took = await goes_on(net, [to_be_asked(net)[index]], wanted)
        assert took <= FIRST_S + (0.2 if sentinels else 0.0)

    played(tiny, act)


def test_one_of_each_stage(tiny: TinyModel) -> None:
    """They are given up together."""
    wanted = undisturbed(tiny)

    async def act(net: StageNet) -> None:
        await striking.hosts(net)
        assert await goes_on(net, to_be_asked(net), wanted) <= FIRST_S

    played(tiny, act)


@WAYS
@STAGES
def test_one_there_is_a_link_to(tiny: TinyModel, index: int, sentinels: int) -> None:
    wanted = undisturbed(tiny)

    async def act(net: StageNet) -> None:
        await striking.hosts(net, sentinels=sentinels)
        for host in net.hosts:
            await net.links.to(host.id, host.addresses)
        took = await goes_on(net, [to_be_asked(net)[index]], wanted)
        # Through a sentinel it is tried once more, in case that only the sentinel fell silent.
        assert took <= (5.0 if sentinels else FIRST_S)

    played(tiny, act)


def slow(net: StageNet, seconds: float) -> None:
    """Let dials of the client take so long."""
    transport = net.links._transport
    dial = transport.dial

    async def late(address: str, expected: NodeId | None, limit: float) -> Channel:
        await asyncio.sleep(seconds)
        return await dial(address, expected, limit)

    transport.dial = late


def test_slow_ones_are_waited_for_where_there_is_no_other(tiny: TinyModel) -> None:
    wanted = undisturbed(tiny)

    async def act(net: StageNet) -> None:
        await striking.hosts(net, (1, 1, 1))
        slow(net, PATIENCE_S + 1)
        answer = Answer(net)
        await answer.read()
        assert answer.tokens == wanted
        assert answer.came[0] < PATIENCE_S + 2
        await answer.end()

    played(tiny, act)


def test_whoever_does_not_come_is_not_waited_for_for_ever(tiny: TinyModel) -> None:
    async def act(net: StageNet) -> None:
        await striking.hosts(net, (1, 1, 1))
        to_be_asked(net)[1].freeze()
        began, answer = now(), Answer(net)
        with pytest.raises(ModelIncomplete, match=r"no host that answers holds layers 4:7"):
            await answer.open()
        assert now() - began <= DIAL_ALL_S + 0.5
        await answer.end()

    played(tiny, act)
