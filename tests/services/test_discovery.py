"""Nodes over the in-memory transport find the network again, wherever they know nodes from."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.file_storage import FileStorage
from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.domain import contacts
from diffuse_core.domain.exchange import BUSY
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.owner_messages import NotAllowed
from diffuse_core.errors import Refused, Unreachable
from diffuse_core.ports import LanNode
from diffuse_core.services import discovery
from diffuse_core.services import memory as memory_service
from diffuse_core.services.memory import Memory, file_name
from diffuse_core.services.neighbourhood import Neighbourhood
from diffuse_core.services.node import Node
from diffuse_core.services.observer import Observer
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack
    from pathlib import Path

    from diffuse_core.domain.identity import NodeId


def node_id(number: int) -> NodeId:
    return Identity(bytes([number]) * 32).node


class Net:
    """Nodes of one memory network, stopped at the end; node n listens at mem:n."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.memory = MemoryNetwork()
        self.stack = stack

    async def node(self, number: int, *bootstrap: str, **options: object) -> Node:
        identity = Identity(bytes([number]) * 32)
        node = Node(
            identity,
            self.memory.transport(identity.node),
            SystemClock(),
            random.Random(number),
            role="host",
            version="test",
            **options,
        )
        await node.start("mem", number, bootstrap, ("mem",))
        self.stack.push_async_callback(node.stop)
        return node

    def observer(self, number: int = 99, **options: object) -> Observer:
        observer = Observer(self.memory.transport(node_id(number)), SystemClock(), **options)
        self.stack.push_async_callback(observer.close)
        return observer


@pytest.fixture
def net(stack: AsyncExitStack) -> Net:
    return Net(stack)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "LOOK_S", 0.02)
    monkeypatch.setattr(discovery, "ALONE_LOOK_S", 0.02)


def sees(node: Node, *numbers: int) -> Callable[[], bool]:
    return lambda: {m.record.node for m in node.members() if m.live} == {*map(node_id, numbers)}


async def test_one_of_several_sentinels_is_enough_and_the_other_is_joined_when_it_comes(
    net: Net,
) -> None:
    await net.node(1)
    third = await net.node(3, "mem:2", "mem:1")
    await until(sees(third, 1, 3))
    await net.node(2)
    await until(sees(third, 1, 2, 3))


async def test_two_addresses_of_one_node_make_one_link(net: Net) -> None:
    first = await net.node(1)
    second = await net.node(2, "mem:1", "ws://mem:1")
    await until(sees(first, 1, 2))
    await until(lambda: len(second.links.linked()[first.id]) == 1)


async def test_a_sentinel_that_comes_back_is_joined_again_by_who_is_alone(net: Net) -> None:
    first = await net.node(1)
    second = await net.node(2, "mem:1")
    await until(sees(second, 1, 2))
    await first.stop()
    await until(sees(second, 2))
    await net.node(1)
    await until(sees(second, 1, 2))


async def test_bootstrap_addresses_that_are_down_are_told_once(net: Net) -> None:
    node = await net.node(2, "mem:1", "mem:7")
    await until(lambda: node.event_count >= 2)
    for _ in range(20):
        await until(lambda: True)
    texts = [event.text for event in node.events]
    assert len(texts) == len(set(texts))
    assert any("bootstrap mem:7" in text and "trying on" in text for text in texts)


async def test_a_node_that_is_its_own_bootstrap_is_quiet_about_it(stack: AsyncExitStack) -> None:
    """All nodes of a network may be given the same list, its sentinels among them."""
    identity = Identity(b"s" * 32)
    transport = WebSocketTransport(identity, "net")
    node = Node(
        identity, transport, SystemClock(), random.Random(1), role="sentinel", version="test"
    )
    stack.push_async_callback(node.stop)
    address = await node.start("127.0.0.1", 0, (), ("127.0.0.1",))
    node.discovery.add("bootstrap", (address,), None)
    await until(lambda: len(node.discovery._contacts._contacts) == 1)
    await until(lambda: not node.discovery._contacts._contacts)
    assert list(node.events) == []


async def test_two_processes_with_one_identity_are_told(stack: AsyncExitStack) -> None:
    """The second was started with a copy of the first one's state directory."""
    identity = Identity(b"s" * 32)
    places: list[str] = []
    for seed in (1, 2):
        transport = WebSocketTransport(identity, "net")
        node = Node(
            identity, transport, SystemClock(), random.Random(seed), role="host", version="test"
        )
        stack.push_async_callback(node.stop)
        bound = await node.start("127.0.0.1", 0, places, ("127.0.0.1",))
        places += [bound, f"ws://{bound}"]
    await until(lambda: not node.discovery._contacts._contacts)
    (event,) = node.events
    assert event.level == "warning"
    assert "has this node's identity" in event.text
    assert "--state-dir" in event.text


async def test_who_left_the_lan_is_no_contact_any_more(net: Net) -> None:
    node = await net.node(1)
    node.discovery.add("lan", ("mem:9",), node_id(9))
    node.discovery.withdraw("lan", ("mem:9",), node_id(9))
    assert not node.discovery._contacts._contacts


async def test_what_cannot_be_tried_now_is_tried_later(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    await net.node(1)
    node = await net.node(2)
    monkeypatch.setattr(node.tasks, "_limit", 0)
    node.discovery.add("bootstrap", ("mem:1",), None)
    await until(lambda: any(c.tries for c in node.discovery._contacts._contacts.values()))
    monkeypatch.undo()
    await until(sees(node, 1, 2))


async def test_memory_is_written_now_and_then(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_service, "FIRST_SAVE_S", 0.02)
    await net.node(1)
    node = await net.node(2, "mem:1")
    await remembering(net, node, tmp_path)
    await until(lambda: (tmp_path / "nodes.json").exists())
    assert file_name(bytes(16)) == f"nodes-{'0' * 16}.json"


async def remembering(net: Net, node: Node, place: Path) -> Memory:
    memory = Memory(node, FileStorage(place), "nodes.json")
    memory.start()
    net.stack.push_async_callback(memory.close)
    return memory


async def test_nodes_of_the_last_run_are_found_without_bootstrap(net: Net, tmp_path: Path) -> None:
    first = await net.node(1)
    second = await net.node(2, "mem:1")
    memory = await remembering(net, second, tmp_path)
    await until(sees(second, 1, 2))
    await memory.close()
    await second.stop()
    await until(sees(first, 1))
    again = await net.node(2)
    await remembering(net, again, tmp_path)
    await until(sees(again, 1, 2))
    await until(sees(first, 1, 2))


async def test_another_node_at_a_remembered_address_is_not_taken_for_it(
    net: Net, tmp_path: Path
) -> None:
    second = await net.node(2)
    await net.node(1, "mem:2")
    memory = await remembering(net, second, tmp_path)
    await until(sees(second, 1, 2))
    await memory.close()
    await second.stop()
    net.memory.kill("mem:1")
    identity = Identity(b"i" * 32)
    impostor = Node(
        identity, net.memory.transport(identity.node), SystemClock(), random.Random(1),
        role="host", version="test",
    )  # fmt: skip
    net.stack.push_async_callback(impostor.stop)
    await impostor.start("mem", 1, (), ("mem",))
    again = await net.node(2)
    await remembering(net, again, tmp_path)
    await until(lambda: any("remembered" in event.text for event in again.events))
    assert again.links.linked() == {}


async def test_two_halves_find_each_other_by_memory(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both halves are networks of their own; only the memory of one node leads over."""
    monkeypatch.setattr(contacts, "GRACE_S", 0.0)
    monkeypatch.setattr(contacts, "SLOW_S", 0.01)
    monkeypatch.setattr(contacts, "_SLOW_FIRST_S", 0.01)
    third = await net.node(3)
    fourth = await net.node(4, "mem:3")
    memory = await remembering(net, fourth, tmp_path)
    await until(sees(fourth, 3, 4))
    await memory.close()
    await fourth.stop()
    await until(sees(third, 3))
    other = await net.node(1)
    fourth = await net.node(4, "mem:1")
    await until(sees(fourth, 1, 4))
    await remembering(net, fourth, tmp_path)
    await until(sees(other, 1, 3, 4))
    await until(sees(third, 1, 3, 4))


async def test_a_damaged_list_is_told_and_replaced(
    net: Net, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "nodes.json").write_bytes(b"{broken")
    await net.node(1)
    node = await net.node(2, "mem:1")
    memory = await remembering(net, node, tmp_path)
    assert "a new one begins" in caplog.text
    await until(sees(node, 1, 2))
    await memory.close()
    assert node_id(1).hex() in (tmp_path / "nodes.json").read_text()


async def test_memory_that_cannot_be_written_is_told_and_nothing_more(
    net: Net, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await net.node(1)
    node = await net.node(2, "mem:1")
    (tmp_path / "file").write_text("in the way")
    memory = Memory(node, FileStorage(tmp_path / "file" / "state"), "nodes.json")
    memory.start()
    await until(sees(node, 1, 2))
    await memory.close()
    assert "cannot remember the nodes" in caplog.text


class Street:
    """A LAN without a wire: what tests say on it is heard."""

    def __init__(self, problem: str = "") -> None:
        self.problem = problem
        self.announced = False
        self.open_ = False
        self.found: Callable[[LanNode], None] | None = None
        self.lost: Callable[[LanNode], None] | None = None

    async def open(
        self, found: Callable[[LanNode], None], lost: Callable[[LanNode], None]
    ) -> None:
        if self.problem:
            raise Unreachable(self.problem)
        self.found, self.lost, self.open_ = found, lost, True

    async def announce(self) -> None:
        self.announced = True

    async def close(self) -> None:
        self.open_ = False


async def test_a_node_said_to_be_on_the_lan_is_joined(net: Net) -> None:
    await net.node(1)
    node = await net.node(2)
    street = Street()
    neighbourhood = Neighbourhood(node, street)
    neighbourhood.start()
    await until(lambda: street.announced)
    street.found(LanNode(("mem:1",), node_id(1)))
    await until(sees(node, 1, 2))
    street.lost(LanNode(("mem:1",), node_id(1)))
    await neighbourhood.close()
    assert not street.open_


async def test_a_liar_on_the_lan_leads_nowhere(net: Net) -> None:
    await net.node(1)
    node = await net.node(2)
    street = Street()
    Neighbourhood(node, street).start()
    await until(lambda: street.announced)
    street.found(LanNode(("mem:1",), node_id(7)))
    await until(lambda: any("found on the LAN" in event.text for event in node.events))
    assert node.links.linked() == {}


async def test_a_lan_that_does_not_work_is_one_line(net: Net) -> None:
    node = await net.node(1)
    Neighbourhood(node, Street("no multicast here")).start()
    await until(lambda: any("no multicast here" in event.text for event in node.events))
    assert [event.level for event in node.events] == ["info"]


async def test_only_the_nodes_of_the_allow_list_are_members(net: Net) -> None:
    """The sentinel knows everybody; the strict node takes in its friend alone."""
    sentinel = await net.node(1)
    strict = await net.node(2, "mem:1", allowed=frozenset({node_id(1), node_id(3)}))
    friend = await net.node(3, "mem:1")
    stranger = await net.node(4, "mem:1")
    await until(lambda: len(sentinel.members()) == 4)
    await until(sees(strict, 1, 2, 3))
    await until(sees(friend, 1, 2, 3, 4))
    with pytest.raises(Unreachable, match="not on this node's allow list"):
        await strict.links.dial("mem:4")
    assert sees(strict, 1, 2, 3)()
    assert stranger.id not in strict.links.linked()


async def test_a_stranger_is_told_and_no_message_of_theirs_is_read(net: Net) -> None:
    strict = await net.node(1, allowed=frozenset({node_id(9)}))
    stranger = await net.node(2, "mem:1")
    await until(lambda: any("allow list" in event.text for event in stranger.events))
    assert any(node_id(2).hex() in event.text for event in stranger.events)
    assert sees(strict, 1)()
    assert sees(stranger, 2)()


async def test_who_is_busy_is_not_taken_for_one_with_an_allow_list(net: Net) -> None:
    busy = await net.node(1)
    node = await net.node(2, "mem:1")
    await until(sees(busy, 1, 2))
    link = busy.links.find(node.id)
    await link.send(BUSY)
    await link.send(NotAllowed("no"))
    await until(lambda: any("allow list" in event.text for event in node.events))
    assert sum("allow list" in event.text for event in node.events) == 1
    node._refused_at = None
    await link.send(BUSY)
    came = node.links.traffic.bytes_in
    await until(lambda: node.links.traffic.bytes_in > came)
    assert node._refused_at is None


async def test_an_observer_that_is_not_allowed_is_refused(net: Net) -> None:
    await net.node(1, allowed=frozenset({node_id(9)}))
    with pytest.raises(Refused, match="allow list"):
        await net.observer().look(["mem:1"])


async def test_the_owner_is_always_let_in(net: Net) -> None:
    await net.node(1, allowed=frozenset({node_id(9)}), owner=node_id(50))
    observer = net.observer(50)
    await observer.look(["mem:1"])
    assert len(observer.members()) == 1


async def test_an_observer_with_a_list_sees_nobody_else(net: Net) -> None:
    first = await net.node(1)
    await net.node(2, "mem:1")
    await until(lambda: len(first.members()) == 2)
    observer = net.observer(allowed=frozenset({node_id(1)}))
    await observer.look(["mem:2", "mem:1"])
    assert [member.record.node for member in observer.members()] == [node_id(1)]
