"""A full port: who gives way, and that a node's owner always gets in."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from diffuse_core.adapters.websocket_transport import WebSocketTransport, gate
from diffuse_core.adapters.websocket_transport.listener import WebSocketListener
from diffuse_core.domain.channel import Credentials
from diffuse_core.domain.identity import Identity
from diffuse_core.errors import ChannelClosed
from tests.adapters.websocket_transport.meeting import BOB, TIMEOUT, echo, settled, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from diffuse_core.ports import Channel


class Port:
    """A listener and those that dial it, each with the origin that the test says."""

    def __init__(self, listener: WebSocketListener, monkeypatch: pytest.MonkeyPatch) -> None:
        self.listener = listener
        self._transports: dict[int, WebSocketTransport] = {}
        self._origin = ""
        monkeypatch.setattr(gate, "origin_of", lambda _: self._origin)
        monkeypatch.setattr(gate, "is_local", lambda *_: self._origin == "here")

    async def dial(self, who: int, origin: str) -> Channel:
        self._origin = origin
        transport = self._transports.setdefault(
            who, WebSocketTransport(Identity(bytes([who]) * 32), "net")
        )
        return await transport.dial(self.listener.address, BOB.node, TIMEOUT)

    @property
    def held(self) -> int:
        return len(self.listener._gate.proven)


async def gets_in(channel: Channel) -> bool:
    try:
        await channel.send(b"in")
        return await channel.receive() == b"in"
    except ChannelClosed:
        return False


@contextlib.asynccontextmanager
async def port(
    monkeypatch: pytest.MonkeyPatch, connections: int, crowd: int = 4
) -> AsyncIterator[Port]:
    monkeypatch.setattr(gate, "CROWD", crowd)
    listener = WebSocketListener(Credentials(BOB, "net", b"\x07" * 32), echo, 64, connections)
    await listener.start("127.0.0.1", 0)
    try:
        yield Port(listener, monkeypatch)
    finally:
        await listener.close()
        await settled()


async def test_one_node_has_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MAX_PER_NODE", 3)
    async with port(monkeypatch, 7) as there:
        mine = [await there.dial(10, "here") for _ in range(5)]
        assert [await gets_in(one) for one in mine] == [True, True, True, False, False]
        other = await there.dial(11, "here")
        assert await gets_in(other)
        await mine[0].close()
        await until(lambda: there.held == 3)
        mine.append(await there.dial(10, "here"))
        assert await gets_in(mine[-1])
        for one in (*mine, other):
            await one.close()


async def test_in_a_full_port_the_node_with_most_connections_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with port(monkeypatch, 7) as there:
        crowd = [await there.dial(10, "here") for _ in range(5)]
        others = [await there.dial(who, "here") for who in (11, 12)]
        assert not await gets_in(await there.dial(10, "here"))
        late = await there.dial(13, "here")
        assert await gets_in(late)
        # Its newest: on the oldest, a reservation, all its circuits hang.
        assert [await gets_in(one) for one in crowd] == [True, True, True, True, False]
        assert all([await gets_in(one) for one in others])
        for one in (*crowd, *others, late):
            await one.close()


async def test_in_a_full_port_the_place_with_most_connections_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many identities it made."""
    async with port(monkeypatch, 7) as there:
        crowd = [await there.dial(10 + n, "a") for n in range(6)]
        other = await there.dial(20, "b")
        assert not await gets_in(await there.dial(30, "a"))
        late = await there.dial(31, "c")
        assert await gets_in(late)
        assert [await gets_in(one) for one in crowd] == [True] * 5 + [False]
        assert await gets_in(other)
        for one in (*crowd, other, late):
            await one.close()


async def test_small_crowds_and_those_of_this_machine_keep_their_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with port(monkeypatch, 7) as there:
        many = [await there.dial(10 + n // 2, "here") for n in range(7)]
        assert not await gets_in(await there.dial(30, "here"))
        assert not await gets_in(await there.dial(31, "far"))
        assert all([await gets_in(one) for one in many])
        for one in many:
            await one.close()


async def test_this_machine_has_places_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with port(monkeypatch, 16, crowd=100) as there:
        far = [await there.dial(10 + n, f"far {n}") for n in range(15)]
        assert [await gets_in(one) for one in far] == [True] * 14 + [False]
        owner = [await there.dial(40 + n, "here") for n in range(2)]
        assert all([await gets_in(one) for one in owner])
        for one in (*far, *owner):
            await one.close()
