"""Nobody can have a third address dialled again and again by making up nodes that live there."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import Ping
from diffuse_core.domain.relayed_address import RelayedAddress
from diffuse_core.errors import Unreachable
from diffuse_core.services import places
from diffuse_core.services.circuits import CircuitTransport
from diffuse_core.services.deliveries import Deliveries
from diffuse_core.services.links import Links
from diffuse_core.services.places import REST_LONGEST_S, REST_S, Places, dialable, place_of
from tests.services.reached import Reached
from tests.services.waiting import until

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.ports import Channel

VICTIM = "192.0.2.7:22"
OTHER = Identity(b"o" * 32).node


def node(number: int) -> NodeId:
    return Identity(number.to_bytes(32)).node


class Hands:
    """Time that is set by hand."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Wire:
    """A base transport that notes what is dialled; who lives somewhere answers there."""

    def __init__(self) -> None:
        self.memory = MemoryNetwork()
        self.inside = self.memory.transport(node(0))
        self.dialled: list[str] = []

    async def dial(self, address: str, expected: NodeId | None, seconds: float) -> Channel:
        self.dialled.append(address)
        return await self.inside.dial(address, expected, seconds)


class Gossiper:
    """Node 0, which brings gossip to whoever it heard of."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.transport = CircuitTransport(self.wire, node(0))  # type: ignore[arg-type]
        self.clock = Hands()
        self.transport.places = Places(self.clock.monotonic)
        self.links = Links(self.transport, node(0))
        self.known: dict[NodeId, tuple[str, ...]] = {}
        self.suspected: list[NodeId] = []
        self.suspect = self.suspected.append
        self.post = Deliveries(self)

    def addresses(self, of: NodeId) -> tuple[str, ...]:
        return self.known.get(of, ())

    async def ping_all(self, seconds: float = 0.0) -> int:
        """Ping everybody, again after each tenth of a second; how many dials that took."""
        before = len(self.wire.dialled)
        for _ in range(1 + int(seconds * 10)):
            for one in self.known:
                self.post.send(one, Ping(1))
            await until(lambda: not self.post._lines)
            self.clock.now += 0.1
        return len(self.wire.dialled) - before

    async def close(self) -> None:
        await self.post.close()
        await self.links.close()


@pytest.fixture
async def stack() -> AsyncExitStack:
    async with AsyncExitStack() as made:
        yield made


@pytest.fixture
async def gossip(stack: AsyncExitStack) -> Gossiper:
    made = Gossiper()
    stack.push_async_callback(made.close)
    return made


async def live(gossip: Gossiper, stack: AsyncExitStack, number: int, port: int) -> None:
    """Node `number` listens at mem:PORT."""
    transport = gossip.wire.memory.transport(node(number))
    links = Links(transport, node(number))
    listener = await transport.listen("mem", port, links.accept)
    stack.push_async_callback(links.close)
    stack.push_async_callback(listener.close)


@pytest.mark.slow
@pytest.mark.parametrize("relayed", [False, True])
async def test_one_place_is_dialled_ever_more_rarely_whoever_is_said_to_be_there(
    gossip: Gossiper, relayed: bool
) -> None:
    for number in range(10, 22):
        way = str(RelayedAddress(node(100 + number), VICTIM)) if relayed else VICTIM
        gossip.known[node(number)] = (way,)
    assert await gossip.ping_all() == 1
    # What waits is no evidence against those who were not looked for.
    assert len(gossip.suspected) == 1
    assert await gossip.ping_all(60.0) <= 20
    assert await gossip.ping_all(600.0) <= 30


async def test_one_node_at_one_address_is_looked_for_as_often_as_before(gossip: Gossiper) -> None:
    gossip.known[node(1)] = ("mem:1",)
    assert await gossip.ping_all(10.0) > 20
    assert len(gossip.suspected) > 20


async def test_who_lives_at_a_place_is_not_kept_from_it_by_made_up_nodes(
    gossip: Gossiper, stack: AsyncExitStack
) -> None:
    for number in range(10, 22):
        gossip.known[node(number)] = ("mem:1",)
    await gossip.ping_all()
    await live(gossip, stack, 1, 1)
    # Somebody else answers: that teaches who lives there.
    link = await gossip.links.dial("mem:1")
    await link.close()
    await until(lambda: gossip.links.find(node(1)) is None)
    await gossip.ping_all(5.0)
    gossip.known[node(1)] = ("mem:1",)
    await gossip.ping_all()
    await until(lambda: gossip.links.find(node(1)) is not None)


async def test_who_answers_in_the_place_of_another_is_at_home_there(
    stack: AsyncExitStack,
) -> None:
    """Over sockets, where it is proven."""
    one, two = (WebSocketTransport(Identity(bytes([n]) * 32), "test") for n in (1, 2))
    links = Links(one)
    stack.push_async_callback(links.close)
    others = Links(two)
    stack.push_async_callback(others.close)
    listener = await two.listen("127.0.0.1", 0, others.accept)
    stack.push_async_callback(listener.close)
    for wanted in (node(8), node(9)):
        with pytest.raises(Unreachable, match="as expected"):
            await links.dial(listener.address, wanted)
    home = Identity(bytes([2]) * 32).node
    assert links.places.rests(listener.address, node(7))
    assert links.places.rests(str(RelayedAddress(node(7), listener.address)), home)
    assert not links.places.rests(listener.address, home)
    assert not links.places.rests(str(RelayedAddress(home, listener.address)), node(7))


async def test_users_and_sessions_are_held_up_by_nothing(
    gossip: Gossiper, stack: AsyncExitStack
) -> None:
    for number in range(10, 22):
        gossip.known[node(number)] = ("mem:1",)
    await gossip.ping_all()
    await live(gossip, stack, 1, 1)
    gossip.clock.now -= 0.1
    assert gossip.links.places.rests("mem:1", node(1))
    link = await gossip.links.to(node(1), ("mem:1",))
    assert link.remote == node(1)
    assert not gossip.links.places.rests("mem:1", node(1))


def test_rests_double_up_to_a_minute_and_what_is_kept_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Hands()
    table = Places(clock.monotonic)

    def fail(address: str, wanted: NodeId) -> None:
        with pytest.raises(Unreachable), table.looking(address, wanted):
            raise Unreachable("nobody there")

    fail(VICTIM, node(1))
    length = REST_S
    for number in range(10):
        fail(VICTIM, node(2 + number))
        length = min(2 * length, REST_LONGEST_S)
        clock.now += length - 0.01
        assert table.rests(VICTIM, OTHER)
        clock.now += 0.02
        assert not table.rests(VICTIM, OTHER)
    monkeypatch.setattr(places, "MAX_KEPT", 5)
    for port in range(1, 20):
        fail(f"192.0.2.7:{port}", OTHER)
        table.answered(f"192.0.2.8:{port}", OTHER)
    assert (len(table._rests), len(table._homes)) == (5, 5)


@pytest.mark.parametrize(
    "spelling",
    [
        "localhost:80",
        "LOCALHOST:80",
        "127.0.0.1:0080",
        "[::ffff:127.0.0.1]:80",
        "0x7f000001:80",
        "ws://127.0.0.1:80/",
        "2130706433:80",
        "127.1:80",
        f"relay:{'ab' * 32}@127.0.0.1:80",
    ],
)
def test_one_place_has_one_name(spelling: str) -> None:
    assert place_of(spelling) == "127.0.0.1:80"


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0:9440",
        "[::]:9440",
        "0:9440",
        "224.0.0.1:9440",
        "[ff02::1]:9440",
        "10.0.0.1:0",
        "169.254.169.254:80",
        "[::ffff:169.254.169.254]:80",
        "0xa9fea9fe:80",
        "2852039166:80",
        "169.254.43518:80",
        "ws://169.254.169.254:80/",
        f"relay:{'ab' * 32}@169.254.169.254:80",
    ],
)
async def test_what_means_nobody_in_particular_is_never_dialled(
    gossip: Gossiper, address: str
) -> None:
    assert not dialable(address)
    gossip.known[node(1)] = (address, "mem:404")
    await gossip.ping_all()
    assert gossip.wire.dialled == ["mem:404"]


@pytest.mark.parametrize(
    "address", ["10.0.0.1:9440", "[2001:db8::1]:9440", "example.org:9440", "mem:1"]
)
def test_other_addresses_are_dialled(address: str) -> None:
    assert dialable(address)


async def test_a_relayed_address_is_dialled_through_a_known_sentinel_only(
    gossip: Gossiper,
) -> None:
    way = str(RelayedAddress(node(5), "mem:5"))
    gossip.transport.addresses = lambda _: ()
    with pytest.raises(Unreachable, match="no live sentinel") as failure:
        await gossip.links.to(node(1), (way,))
    # It tells nothing of the node.
    assert isinstance(failure.value.__cause__, TimeoutError)
    assert gossip.wire.dialled == []
    for known in (("mem:6",), None):
        gossip.transport.addresses = lambda _, known=known: known
        with pytest.raises(Unreachable, match="cannot be reached"):
            await gossip.links.to(node(1), (way,))
    assert gossip.wire.dialled == ["mem:5", "mem:6", "mem:5"]


async def test_nodes_know_who_is_a_sentinel(stack: AsyncExitStack) -> None:
    town = Reached(stack)
    sentinel = await town.sentinel()
    assert sentinel.node.sentinel_addresses(node(9)) is None
    host, client = await town.start("host", "never"), await town.start("client", "never")
    await until(lambda: client.told(host.node) and host.told(client.node))
    assert client.node.sentinel_addresses(sentinel.node.id) == (sentinel.address,)
    assert client.node.sentinel_addresses(host.node.id) == ()
    assert client.node.sentinel_addresses(node(9)) == ()
