"""Links whose other end answers no more: nobody waits for them, and fresh ones replace them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.messages import CloseSession, Ping
from tests.services.test_links import Pool
from tests.services.test_node import Net
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from diffuse_core.services.links import Link
    from diffuse_core.services.node import Node


@pytest.fixture
async def pools() -> AsyncIterator[tuple[Pool, Pool]]:
    async with AsyncExitStack() as stack:
        one = Pool(Net(stack).memory, 1)
        pair = one, Pool(one.network, 2)
        for pool in pair:
            await pool.start()
            stack.push_async_callback(pool.listener.close)
            stack.push_async_callback(pool.links.close)
        yield pair


async def linked(one: Pool, two: Pool) -> tuple[Link, Link]:
    """A link from both ends."""
    near = await one.links.to(two.id, ("mem:2",))
    await until(lambda: two.links.linked())
    return near, two.links.linked()[one.id][-1]


async def test_who_was_found_dead_is_dialled_anew(pools: tuple[Pool, Pool]) -> None:
    one, two = pools
    old, _ = await linked(one, two)
    one.links.found_dead(two.id)
    assert one.links.find(two.id) is None
    assert one.links.speaking() == set()
    fresh = await one.links.to(two.id, ("mem:2",))
    assert fresh is not old
    assert one.links.find(two.id) is fresh
    assert one.links.speaking() == {two.id}


async def test_a_fresh_link_ends_useless_ones(pools: tuple[Pool, Pool]) -> None:
    one, two = pools
    old, far = await linked(one, two)
    one.links.found_dead(two.id)
    fresh = await one.links.to(two.id, ("mem:2",))
    await until(lambda: one.links.linked()[two.id] == [fresh])
    assert one.ended == [old]
    await until(lambda: two.ended == [far])


async def test_a_link_stays_beside_a_fresh_one_though_a_session_found_it_silent(
    pools: tuple[Pool, Pool],
) -> None:
    one, two = pools
    old, _ = await linked(one, two)
    old.fell_silent()
    assert one.links.find(two.id) is old
    fresh = await one.links.dial("mem:2", two.id)
    await fresh.send(CloseSession(b"s" * 16))
    await until(lambda: two.came)
    assert one.links.linked()[two.id] == [old, fresh]
    assert one.ended == []


async def test_who_is_heard_again_is_found_again(pools: tuple[Pool, Pool]) -> None:
    one, two = pools
    near, far = await linked(one, two)
    one.links.found_dead(two.id)
    await far.send(CloseSession(b"s" * 16))
    await until(lambda: one.came)
    assert one.links.find(two.id) is near
    assert one.links.speaking() == {two.id}


def state(viewer: Node, node: Node) -> str:
    """What a node thinks of another."""
    return next(seen.liveness for seen in viewer.view().nodes if seen.node == node.id.hex())


@pytest.mark.slow
@pytest.mark.parametrize("dialled", [False, True])
async def test_one_found_dead_is_met_over_a_fresh_link(dialled: bool) -> None:
    async with AsyncExitStack() as stack:
        net = Net(stack)
        known, address = await net.node(1)
        newcomer, _ = await net.node(2, address)
        await until(lambda: known.links.linked() and len(known.members()) == 2)
        await until(lambda: len(newcomer.members()) == 2)
        seer, mute = (newcomer, known) if dialled else (known, newcomer)
        (old,) = seer.links.linked()[mute.id]
        assert old.dialled == dialled
        mute.links.unhandle(Ping)
        await mute.tasks.close()  # it says nothing of itself any more either

        def found_dead() -> bool:
            seer.suspect(mute.id)  # as who cannot be reached is found dead sooner
            return state(seer, mute) == "dead"

        await until(found_dead)
        assert old.useless
        # Who looks after the dead now and then dials, though the old link still stands.
        await until(lambda: seer.links.find(mute.id) not in (None, old))
        await until(lambda: old.closed)
        assert seer.links.find(mute.id) is not None
