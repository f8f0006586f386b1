"""A node process: what it consists of, from its first breath to its last."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from diffuse_core import __version__
from diffuse_core.adapters.few_files import bear_few_files
from diffuse_core.adapters.file_storage import FileStorage, StateLock, load_identity
from diffuse_core.adapters.hardware import SystemHardware, interface_addresses
from diffuse_core.adapters.sensors import SystemSensors
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.domain.identity import node_text
from diffuse_core.errors import UsageError
from diffuse_core.finding import OWNER_KEY, find_others, open_transport
from diffuse_core.operating import Operations, figures_served, reported
from diffuse_core.services.client import ClientService
from diffuse_core.services.compute import ComputeThread
from diffuse_core.services.dial_back import DialBack
from diffuse_core.services.ending import Ending
from diffuse_core.services.feed import FeedService
from diffuse_core.services.host import HostOptions, HostService
from diffuse_core.services.model_choice import AUTO
from diffuse_core.services.model_reporter import ModelReporter
from diffuse_core.services.node import Node
from diffuse_core.services.reachability import Reachability
from diffuse_core.services.relay import RelayService
from diffuse_core.services.reservations import Reservations, sentinels
from diffuse_core.services.vitals import Vitals
from diffuse_core.settings import (
    DEFAULT_PORT,
    NODE_FILE,
    PORT_TRIES,
    PUBLIC,
    NetworkOptions,
    NodeFile,
    cache_dir,
    process_start,
)
from diffuse_core.wiring import (
    find_device,
    fresh_rng,
    model_store,
    open_slice,
    open_tokenizer,
    warm_up,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from prometheus_client.metrics_core import Metric

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.reachability import RelayMode
    from diffuse_core.domain.relay import RelayLimits
    from diffuse_core.domain.reservations import Candidate
    from diffuse_core.domain.roles import Role
    from diffuse_core.model_ports import DeviceKind
    from diffuse_core.services.circuits import CircuitTransport

IDENTITY_KEY = "identity.key"
WILDCARDS = ("0.0.0.0", "::", "")  # noqa: S104  (compared with, never bound by this line)


@dataclass(frozen=True)
class NodeOptions:
    """How a node process runs. `listen` None takes the default port, or the next free one."""

    state: Path
    role: Role
    listen: tuple[str, int] | None = None
    bootstrap: tuple[str, ...] = ()
    network: NetworkOptions = PUBLIC
    public: tuple[str, ...] = ()
    """Where others are to dial it, whatever Sentinels find; () takes its interfaces, and what
    they see."""
    relay: RelayMode = "auto"
    relay_limits: RelayLimits | None = None
    """What a sentinel gives to nodes that it relays for; None is as usual."""
    target_replicas: int = 2
    host: HostOptions | None = None
    drain: float | None = None
    """Seconds that Sessions may take to finish once a signal asks for the end; None: the usual."""
    operations: Operations = field(default_factory=Operations)
    device: DeviceKind | None = None
    """What the host computes on; None takes the best that is there."""
    threads: int | None = None
    """How many threads it computes with; None takes one for each core."""
    started: Callable[[str, str, tuple[str, ...]], None] = field(
        default=lambda _node, _bound, _reachable: None
    )
    """Called with the node id, where it listens, and where others reach it."""


async def run_node(options: NodeOptions, stop: asyncio.Event) -> None:
    """Run a node until `stop` is set; a Host then lets its Sessions finish, for seconds.

    Raises:
        UsageError: the port or the state directory is in use, the memory cap is too small,
            what is to be computed on is not there.
        ModelUnknown, ModelUnusable: the model to host cannot be read.
    """
    if options.host is not None and options.host.model != AUTO:
        model_store().check(options.host.model)
    storage = FileStorage(options.state)
    bear_few_files(asyncio.get_running_loop())
    with StateLock(options.state):
        identity = load_identity(options.state, IDENTITY_KEY)
        owner = load_identity(options.state, OWNER_KEY)
        async with contextlib.AsyncExitStack() as stack:
            transport = await open_transport(identity, options.network)
            node = Node(
                identity,
                transport,
                SystemClock(),
                fresh_rng(),
                role=options.role,
                version=__version__,
                target_replicas=options.target_replicas,
                allowed=options.network.allowed,
                owner=owner.node,
            )
            transport.addresses = node.sentinel_addresses
            relays = Reservations(node, transport.base, partial(_sentinels, node), fresh_rng())
            # The farewell goes over these links as well.
            stack.push_async_callback(relays.close)
            stack.push_async_callback(node.stop)
            relay: RelayService | None = None
            if options.role == "sentinel":
                relay = _help_others(node, transport, options.relay_limits, stack)
            address = await _listen(node, options)
            _be_reached(node, relays, options, address, stack)
            _announce(storage, node, address)
            stack.callback(storage.delete, NODE_FILE)
            hope = await find_others(
                node, storage, options.network, options.bootstrap, address, stack
            )
            await _serve(node, owner.node, options, hope, stop, stack, relay)


async def _listen(node: Node, options: NodeOptions) -> str:
    asked = options.listen
    ports = [asked[1]] if asked else range(DEFAULT_PORT, DEFAULT_PORT + PORT_TRIES)
    host = asked[0] if asked else WILDCARDS[0]
    reachable = options.public or ((host,) if host not in WILDCARDS else interface_addresses())
    if options.relay == "always":
        reachable = ()
    problem: UsageError | None = None
    for port in ports:
        try:
            address = await node.start(host, port, options.bootstrap, reachable)
        except UsageError as error:
            problem = error
            continue
        options.started(node_text(node.id), address, node.addresses(node.id))
        return address
    raise problem or UsageError("no port is free; give one with --listen HOST:PORT")


def _help_others(
    node: Node,
    transport: CircuitTransport,
    limits: RelayLimits | None,
    stack: contextlib.AsyncExitStack,
) -> RelayService:
    """What a Sentinel does for nodes that may not be dialled."""
    relay = RelayService(node, fresh_rng(), limits)
    stack.push_async_callback(relay.close)
    relay.start()
    stack.push_async_callback(DialBack(node.links, transport.base, node.clock).close)
    return relay


def _be_reached(
    node: Node,
    relays: Reservations,
    options: NodeOptions,
    address: str,
    stack: contextlib.AsyncExitStack,
) -> None:
    """Find out how others reach this node, and whether they do where the user said."""
    # A Sentinel that others reach through another one would be of no use to anybody.
    relayed = None if options.role == "sentinel" or options.relay == "never" else relays
    reachability = Reachability(node, options.relay, relayed, fresh_rng())
    relays.on_change = reachability.changed
    stack.push_async_callback(reachability.close)
    port = int(address.rpartition(":")[2])
    reachability.start(port, node.addresses(node.id), named=bool(options.public))


def _sentinels(node: Node) -> list[Candidate]:
    return sentinels(node, node.id, node.discovery.reached())


def _announce(storage: FileStorage, node: Node, address: str) -> None:
    host, _, port = address.rpartition(":")
    local = f"127.0.0.1:{port}" if host.strip("[]") in WILDCARDS else address
    pid = os.getpid()
    found = NodeFile(local, node_text(node.id), pid, process_start(pid) or 0.0)
    storage.write(NODE_FILE, msgspec.json.encode(found))


async def _serve(
    node: Node,
    owner: NodeId,
    options: NodeOptions,
    hope: float,
    stop: asyncio.Event,
    stack: contextlib.AsyncExitStack,
    relay: RelayService | None,
) -> None:
    hardware = SystemHardware()
    cache = FileStorage(cache_dir() / "bundles")
    kept = FileStorage(options.state)
    client = ClientService(node, cache, open_tokenizer, fresh_rng(), node.id, quarantine=kept)
    host: HostService | None = None
    compute: ComputeThread | None = None
    work: list[asyncio.Task[None]] = []
    if options.host is not None:
        compute = ComputeThread()
        stack.callback(compute.close)
        choice = partial(find_device, options.device, options.threads)
        host = HostService(node, choice, model_store(), open_slice, compute, options.host)
        life = _live(host, node, hope)
        work.append(asyncio.create_task(life, name="host"))
    ending = Ending(host.leave if host is not None else None, options.drain)
    stack.push_async_callback(ending.close)
    work.append(asyncio.create_task(ending.over(stop), name="end"))
    sensors = SystemSensors(cache_dir(), nvidia=hardware.accelerator_likely())
    reporter = ModelReporter(node)
    stack.push_async_callback(reporter.close)
    reporter.start()
    feed = FeedService(node, hardware, client, owner, ending.ask, host, relay, sensors)
    stack.push_async_callback(feed.close)
    vitals = Vitals(node, __version__, options.role, feed, host, compute, relay)
    try:
        await _be_watched(vitals, options.operations, ending, stack)
        done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in work:
            task.cancel()
        await asyncio.wait(work, timeout=5)


async def _be_watched(
    vitals: Vitals, operations: Operations, ending: Ending, stack: contextlib.AsyncExitStack
) -> None:
    """Tell operators how this node is, from now to its end."""

    def source() -> Iterable[Metric]:
        from diffuse_core.adapters.metrics import families

        return families(vitals.figures())

    await stack.enter_async_context(figures_served(operations.metrics, source, vitals.health))
    told = reported(operations.notifier, vitals.status, vitals.health, ending.asked)
    await stack.enter_async_context(told)


async def _live(host: HostService, node: Node, hope: float) -> None:
    if 0 < hope < math.inf:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(hope):
                await node.joined.wait()
    await host.run(alone=hope < math.inf, warm=warm_up)
