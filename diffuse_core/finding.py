"""Finding the network: what a node and a client need of the world for it.

A node knows bootstrap addresses, the nodes of its last run and those of the LAN, and tries them
for as long as it lives (services.discovery). A client goes through them once.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from typing import TYPE_CHECKING

from diffuse_core.adapters.file_storage import FileStorage, load_identity
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.domain.identity import Identity, NodeId, node_text
from diffuse_core.errors import Refused, Unreachable
from diffuse_core.services.circuits import CircuitTransport
from diffuse_core.services.dialling import Place
from diffuse_core.services.memory import Memory, file_name, recall
from diffuse_core.services.neighbourhood import Neighbourhood
from diffuse_core.services.observer import Observer
from diffuse_core.settings import DEFAULT_PORT, NetworkOptions, Places, running_node

if TYPE_CHECKING:
    from diffuse_core.ports import LanNode
    from diffuse_core.services.node import Node

OWNER_KEY = "owner.key"
ANYWHERE = "0.0.0.0"  # noqa: S104  (compared with, never bound)
LAN_FIRST_S = 2.5
"""How long a host without other contacts waits for the LAN before it goes on alone: somebody who
announces themselves at the same time is heard after 1.3 s."""
LAN_LOOK_S = 1.0
LAN_MORE_S = 0.2
MAX_RECALLED = 32


async def open_transport(identity: Identity, network: NetworkOptions) -> CircuitTransport:
    """What a node or client of this identity talks through on a network."""
    # The key takes its time, and the loop is the screen's in the app.
    key = network.key if network.secret is None else await asyncio.to_thread(lambda: network.key)
    direct = WebSocketTransport(identity, network.name, key)
    return CircuitTransport(direct, identity.node, network.allowed)


async def find_others(
    node: Node,
    storage: FileStorage,
    network: NetworkOptions,
    bootstrap: tuple[str, ...],
    address: str,
    stack: contextlib.AsyncExitStack,
) -> float:
    """Ask nodes of the last run, and the LAN; how many seconds an answer is worth waiting for."""
    memory = Memory(node, storage, file_name(network.tag))
    remembered = memory.start()
    stack.push_async_callback(memory.close)
    host, _, port = address.rpartition(":")
    hope = math.inf if bootstrap or remembered else 0.0
    if network.mdns:
        from diffuse_core.adapters.mdns import Announcement, MdnsLan, lan_interfaces

        if interfaces := lan_interfaces(host.strip("[]")):
            said = Announcement(node.id, int(port))
            keyed = network.secret is not None
            lan = MdnsLan(interfaces, network.tag, keyed=keyed, announcement=said)
            neighbourhood = Neighbourhood(node, lan)
            neighbourhood.start()
            stack.push_async_callback(neighbourhood.close)
            hope = max(hope, LAN_FIRST_S)
    return hope


async def find_network(where: Places, network: NetworkOptions) -> Observer:
    """Somebody new who looks at the network; the owner where only an allow list may ask.

    Raises:
        Unreachable: no node answers.
        Refused: those that answer do not allow it.
    """
    if network.allowed is None or where.state is None:
        try:
            return await _observe_as(Identity(os.urandom(32)), where, network)
        except Refused:
            if where.state is None:
                raise
    owner = load_identity(where.state, OWNER_KEY)
    try:
        return await _observe_as(owner, where, network)
    except Refused as error:
        own = node_text(owner.node)
        raise Refused(f"{error}; to be one of them, have {own} added there", "owner") from error


async def _observe_as(identity: Identity, where: Places, network: NetworkOptions) -> Observer:
    transport = await open_transport(identity, network)
    observer = Observer(transport, SystemClock(), allowed=network.allowed, own=identity.node)
    transport.addresses = observer.sentinel_addresses
    try:
        if where.given:
            await observer.look(where.given)
        else:
            await _look_around(observer, where, network)
    except BaseException:
        await observer.close()
        raise
    return observer


async def _look_around(observer: Observer, where: Places, network: NetworkOptions) -> None:
    """Ask the node running here, else those remembered or at the default port, else the LAN."""
    here = None if where.state is None else running_node(where.state)
    if here is not None:
        with contextlib.suppress(Unreachable):
            return await observer.look([Place(here.address, NodeId(bytes.fromhex(here.node)))])
    known: list[Place] = []
    if where.state is not None:
        name = file_name(network.tag)
        remembered = recall(FileStorage(where.state), name, SystemClock().wall())
        known = [Place(address, node.id) for node in remembered for address in node.addresses]
    usual = Place(here.address if here else f"127.0.0.1:{DEFAULT_PORT}")
    try:
        await observer.look([*known[:1], usual, *known[1:MAX_RECALLED]])
    except Unreachable:
        near = await on_lan(network)
        if not near:
            raise
        await observer.look(
            [Place(address, node.node) for node in near for address in node.addresses]
        )


async def on_lan(network: NetworkOptions) -> list[LanNode]:
    """Nodes that announce themselves on the LAN."""
    found: list[LanNode] = []
    if not network.mdns:
        return found
    from diffuse_core.adapters.mdns import MdnsLan, lan_interfaces

    some = asyncio.Event()

    def on_found(node: LanNode) -> None:
        found.append(node)
        some.set()

    interfaces = lan_interfaces(ANYWHERE)
    lan = MdnsLan(interfaces, network.tag, keyed=network.secret is not None)
    try:
        await lan.open(on_found, lambda _: None)
        async with asyncio.timeout(LAN_LOOK_S):
            await some.wait()
        await asyncio.sleep(LAN_MORE_S)
    except (Unreachable, TimeoutError):
        pass
    finally:
        await lan.close()
    return found
