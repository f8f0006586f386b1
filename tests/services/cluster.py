"""Networks of full nodes in one process: what `running.run_node` builds, over a chosen transport.

Everything is real but the wires (unless they are asked for): gossip, planner, model files,
executor, executor thread, tokenizer.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.file_storage import FileStorage
from diffuse_core.adapters.hardware import SystemHardware
from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.adapters.models.store import FileModelStore
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.adapters.tokenizer.bundle_tokenizer import load_tokenizer
from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.domain.identity import Identity
from diffuse_core.services.attachment import NodeAttachment
from diffuse_core.services.circuits import CircuitTransport
from diffuse_core.services.client import ClientService
from diffuse_core.services.compute import ComputeThread
from diffuse_core.services.devices import Device
from diffuse_core.services.ending import Ending
from diffuse_core.services.feed import FeedService
from diffuse_core.services.host import HostOptions, HostService
from diffuse_core.services.node import Node
from diffuse_core.services.observer import Observer
from diffuse_core.services.reachability import Reachability
from diffuse_core.services.relay import RelayService
from diffuse_core.services.reservations import Reservations, sentinels
from tests.services.waiting import until

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable
    from contextlib import AsyncExitStack
    from pathlib import Path

    from diffuse_core.domain.bundle import Bundle
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.records import Role
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import Executor, ModelStore
    from diffuse_core.ports import Tokenizer, Transport
    from tests.services.tiny_model import TinyModel

PLENTY = 2**30


@cache
def tokenizer_of(bundle: Bundle) -> Tokenizer:
    """The real loader; once per bundle, because each starts a process for its template."""
    return load_tokenizer(bundle)


@dataclass(eq=False)
class Host:
    """One hosting node and its parts."""

    node: Node
    address: str
    service: HostService
    client: ClientService
    compute: ComputeThread
    owner: Identity
    executors: list[Executor] = field(default_factory=list)
    ending: Ending = field(default_factory=Ending)
    life: asyncio.Task[None] | None = None
    feed: FeedService | None = None

    @property
    def id(self) -> NodeId:
        return self.node.id

    async def idle(self) -> None:
        """Wait until nothing of any session is left: not in the books, not in the executor."""
        stage = self.service.stage
        assert stage is not None
        await until(lambda: stage.sessions == 0)
        assert stage.kv_used == 0
        await self.compute.run(lambda: None)
        assert self.caches() == 0

    def caches(self) -> int:
        """How many caches the executor holds."""
        return len(self.executors[-1]._sessions)

    def rows(self) -> int:
        """Positions in the executor's caches."""
        return sum(session.cache.length for session in self.executors[-1]._sessions.values())


class Cluster:
    """A sentinel and what a test adds to it. Everything ends with `stack`."""

    def __init__(
        self, stack: AsyncExitStack, model: TinyModel, directory: Path, *, sockets: bool = False
    ) -> None:
        self.stack = stack
        self.model = model
        self.directory = directory
        self.memory = MemoryNetwork()
        self.contract: Contract = "fp32"
        self.asked = str(model.path)
        self.store: ModelStore = FileModelStore(lambda _: directory)
        self.device = Device("cpu", threads=1, free=4 * PLENTY)
        self.place = "127.0.0.1" if sockets else "mem"
        self.sockets = sockets
        self.hosts: list[Host] = []
        self.nodes: list[Node] = []
        self.relays: dict[NodeId, RelayService] = {}
        self.bootstrap: tuple[str, ...] = ()
        self.seeds = iter(range(1, 256))

    def identity(self) -> Identity:
        return Identity(bytes([next(self.seeds)]) * 32)

    def transport(self, identity: Identity) -> CircuitTransport:
        base: Transport = self.memory.transport(identity.node)
        if self.sockets:
            base = WebSocketTransport(identity, "test")
        return CircuitTransport(base, identity.node)

    async def start_node(self, role: Role, *, relayed: bool = False) -> tuple[Node, str]:
        """Start a node; a relayed one tells nobody where it listens, and is met at sentinels."""
        identity = self.identity()
        transport = self.transport(identity)
        node = Node(
            identity,
            transport,
            SystemClock(),
            random.Random(identity.node),
            role=role,
            version="test",
        )
        transport.addresses = node.sentinel_addresses
        reservations = Reservations(
            node,
            transport.base,
            lambda: sentinels(node, node.id, node.discovery.reached()),
            random.Random(identity.node),
        )
        self.stack.push_async_callback(reservations.close)
        self.stack.push_async_callback(node.stop)
        self.nodes.append(node)
        told = () if relayed else (self.place,)
        address = await node.start(self.place, 0, self.bootstrap, told)
        if relayed:
            reach = Reachability(node, "always", reservations, random.Random(1))
            reservations.on_change = reach.changed
            self.stack.push_async_callback(reach.close)
            reach.start(int(address.rpartition(":")[2]), ())
        return node, address

    async def start_sentinel(self) -> Node:
        """Start a sentinel that relays; all that are started later know it from the beginning."""
        node, address = await self.start_node("sentinel")
        relay = self.relays[node.id] = RelayService(node, random.Random(2))
        self.stack.push_async_callback(relay.close)
        relay.start()
        self.bootstrap = (*self.bootstrap, address)
        return node

    async def lose_sentinel(self, sentinel: Node) -> None:
        """Let a sentinel vanish, with all it carries."""
        (address,) = sentinel.addresses(sentinel.id)
        self.bootstrap = tuple(other for other in self.bootstrap if other != address)
        self.nodes.remove(sentinel)
        relay = self.relays.pop(sentinel.id)
        if not self.sockets:
            self.vanish(sentinel.id)
            self.memory.kill(address)
            return
        await sentinel._listener.close()
        await sentinel.tasks.close()
        await relay.close()
        await sentinel.links.close()

    def carried(self) -> int:
        """How many circuits the sentinels hold now."""
        return sum(relay.figures().circuits for relay in self.relays.values())

    async def host(
        self,
        max_layers: int | None = None,
        memory: int = PLENTY,
        *,
        load: Callable[..., Executor] = load_slice,
        wait: bool = True,
        relayed: bool = False,
    ) -> Host:
        """Start a host; return once everybody sees it ready, unless told not to wait."""
        if not self.bootstrap:
            await self.start_sentinel()
        node, address = await self.start_node("host", relayed=relayed)
        storage = FileStorage(self.directory / address.replace(":", "-"))
        compute = ComputeThread()
        self.stack.callback(compute.close)
        executors: list[Executor] = []

        def loading(*given: object, device: str) -> Executor:
            assert device == self.device.kind
            executors.append(load(*given))
            return executors[-1]

        service = HostService(
            node,
            lambda: self.device,
            self.store,
            loading,
            compute,
            HostOptions(self.asked, self.contract, memory, max_layers),
        )
        client = ClientService(node, storage, tokenizer_of, random.Random(address), node.id)
        ending = Ending(service.leave)
        self.stack.push_async_callback(ending.close)
        host = Host(node, address, service, client, compute, self.identity(), executors, ending)
        feed = FeedService(node, SystemHardware(), client, host.owner.node, ending.ask, service)
        self.stack.push_async_callback(feed.close)
        host.feed = feed
        host.life = asyncio.create_task(service.run(alone=False), name=f"host {address}")
        self.stack.push_async_callback(self.end, host)
        self.hosts.append(host)
        if wait:
            await self.settled(host)
        return host

    async def settled(self, *hosts: Host) -> None:
        """Wait until every node sees these hosts ready."""
        for host in hosts:
            await until(lambda host=host: host.service.ready.is_set() or host.life.done())
            if host.life.done():
                self.hosts.remove(host)
                host.life.result()
        wanted = {host.id for host in hosts}
        await until(lambda: all(wanted <= ready(node) for node in self.nodes))
        await until(lambda: all(node.addresses(host) for node in self.nodes for host in wanted))

    async def end(self, host: Host) -> None:
        """Stop a host's service, as a signal does."""
        host.life.cancel()
        await asyncio.wait([host.life])
        # Of one that is no longer listed the test knows how it ended.
        if host in self.hosts and not host.life.cancelled():
            host.life.result()

    async def leave(self, host: Host) -> None:
        """Stop a host in an orderly way."""
        self.nodes.remove(host.node)
        await self.end(host)
        await host.node.stop()

    def crash(self, host: Host) -> None:
        """Let a host vanish: no farewell, no frame more in either direction."""
        self.nodes.remove(host.node)
        self.vanish(host.id)
        self.memory.kill(host.address)

    def vanish(self, node: NodeId) -> None:
        """Cut a node off from everybody."""
        for other in range(1, 256):
            self.memory.cut(node, Identity(bytes([other]) * 32).node)

    async def observer(self) -> Observer:
        identity = self.identity()
        observer = Observer(self.transport(identity), SystemClock())
        observer.id = identity.node
        self.stack.push_async_callback(observer.close)
        await observer.look(self.bootstrap)
        return observer

    async def client(self, observer: Observer | None = None) -> ClientService:
        """A client that holds nothing, as `query` is one."""
        observer = observer or await self.observer()
        storage = FileStorage(self.directory / f"client-{next(self.seeds)}")
        return ClientService(observer, storage, tokenizer_of, random.Random(1))

    async def attach(self, host: Host, identity: Identity | None = None) -> NodeAttachment:
        attachment = NodeAttachment(self.transport(identity or host.owner))
        self.stack.push_async_callback(attachment.close)
        await attachment.open(host.address, host.id)
        return attachment


def ready(node: Node) -> set[bytes]:
    """The hosts that `node` sees ready."""
    return {
        member.record.node
        for member in node.members()
        if member.live and member.record.holding and member.record.holding.state == "ready"
    }


SPLITS: dict[int, tuple[int | None, ...]] = {
    1: (None,),
    2: (5, 5),
    3: (4, 4, 4),
    5: (2, 2, 2, 2, 2),
}
"""Layer caps of the hosts that make so many stages of the model's ten layers."""


async def start_split(
    stack: contextlib.AsyncExitStack,
    model: TinyModel,
    directory: Path,
    stages: int,
    *,
    sockets: bool = False,
    relayed: bool = False,
    relays: int = 1,
) -> Cluster:
    """A network whose routes have `stages` stages; with `relayed` hosts nobody can dial them."""
    cluster = Cluster(stack, model, directory, sockets=sockets)
    for _ in range(relays):
        await cluster.start_sentinel()
    for cap in SPLITS[stages]:
        await cluster.host(cap, relayed=relayed)
    return cluster
