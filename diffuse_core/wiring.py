"""The composition root: builds nodes, observers and attachments out of services and adapters.

torch is loaded only when a Slice is (through `_load_slice`), and only on the executor thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from diffuse_core import __version__
from diffuse_core.adapters.file_storage import FileStorage, StateLock, load_identity
from diffuse_core.adapters.hardware import SystemHardware, interface_addresses
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.domain.bundle import bundle_digest, open_bundle
from diffuse_core.domain.identity import NodeId, node_text
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable, Unreachable, UsageError
from diffuse_core.finding import OWNER_KEY, find_network, find_others, open_transport
from diffuse_core.services.attachment import NodeAttachment
from diffuse_core.services.client import ClientService
from diffuse_core.services.compute import ComputeThread
from diffuse_core.services.devices import check_computed, choose_device, default_capacity
from diffuse_core.services.ending import Ending
from diffuse_core.services.feed import FeedService
from diffuse_core.services.host import HostOptions, HostService
from diffuse_core.services.model_choice import AUTO
from diffuse_core.services.node import Node
from diffuse_core.services.verification import sample_prompts
from diffuse_core.settings import (
    DEFAULT_PORT,
    NODE_FILE,
    PORT_TRIES,
    PUBLIC,
    NetworkOptions,
    NodeFile,
    Places,
    cache_dir,
    running_node,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from diffuse_core.adapters.models.hub_name import HubName
    from diffuse_core.adapters.models.store import FileModelStore
    from diffuse_core.domain.bundle import Bundle
    from diffuse_core.domain.records import Role
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import DeviceKind, Executor, Progress, WeightSource
    from diffuse_core.ports import Tokenizer
    from diffuse_core.services.devices import Device
    from diffuse_core.services.observer import Observer
    from diffuse_core.services.verification import Report, Tell

SMALL_MODEL = 4 * 2**30
"""Up to so many bytes in fp32 a verification also runs the library's own model."""
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
    target_replicas: int = 2
    host: HostOptions | None = None
    device: DeviceKind | None = None
    """What the host computes on; None takes the best that is there."""
    threads: int | None = None
    """How many threads it computes with; None takes one for each core."""
    started: Callable[[str, str, tuple[str, ...]], None] = field(
        default=lambda _node, _bound, _reachable: None
    )
    """Called with the node id, where it listens, and where others reach it."""


@dataclass(frozen=True)
class VerifyOptions:
    """How to verify a model. None leaves the choice to the machine and the model."""

    contract: Contract | None = None
    device: DeviceKind | None = None
    threads: int | None = None
    memory: int | None = None
    tokens: int = 24
    against_library: bool | None = None


def _rng() -> random.Random:
    return random.Random(int.from_bytes(os.urandom(16)))  # noqa: S311  (spreads load, no secret)


def _load_tokenizer(bundle: Bundle) -> Tokenizer:
    from diffuse_core.adapters.tokenizer.bundle_tokenizer import load_tokenizer

    return load_tokenizer(bundle)


def _load_torch(module: str) -> None:
    """Import what stands on torch, after setting what its libraries read when they are loaded.

    By default threads spin for milliseconds for each other, which is ruinous as soon as two Hosts,
    or a Host and anything else, share the cores: three Hosts on two busy cores went from 2.5 to
    9-16 tokens/s with this, and a single Host on idle cores from 42 to 48.

    Matrix code is made for each number of rows and each of six kinds of matrices, 0.7 MiB a piece,
    and kept by two caches of 1,024: prompts of 250 lengths made a Host grow by 660 MiB. With 64
    it is 50 MiB; ten sessions decode together without a miss, which costs a millisecond.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    os.environ.setdefault("LRU_CACHE_CAPACITY", "64")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    from diffuse_core.adapters.executor.quiet_import import import_quietly

    import_quietly(module)


def _load_slice(
    source: WeightSource,
    part: Slice,
    contract: Contract,
    progress: Progress,
    *,
    device: DeviceKind,
) -> Executor:
    _load_torch("diffuse_core.adapters.executor.loader")
    from diffuse_core.adapters.executor.loader import load_slice

    return load_slice(source, part, contract, progress, device=device)


def _accelerators() -> Mapping[DeviceKind, int]:
    _load_torch("diffuse_core.adapters.executor.accelerators")
    from diffuse_core.adapters.executor.accelerators import accelerators

    return accelerators()


def find_device(asked: DeviceKind | None, threads: int | None) -> Device:
    """What to compute on here. Blocks, and loads torch where there may be an accelerator.

    Raises:
        UsageError: the device asked for is not there.
    """
    return choose_device(asked, threads, SystemHardware(), _accelerators)


def _warm(device: Device) -> None:
    _load_torch("diffuse_core.adapters.executor.loader")
    from diffuse_core.adapters.executor.loader import set_threads

    set_threads(device.threads)


def model_store() -> FileModelStore:
    """Where models named by path, by hub id or `demo` are opened."""
    from diffuse_core.adapters.models.store import FileModelStore

    def demo(progress: Progress) -> Path:
        from diffuse_core.adapters.models.demo import fetch_demo

        return fetch_demo(cache_dir() / "models", progress)

    def hub(name: HubName, progress: Progress) -> WeightSource:
        from diffuse_core.adapters.models.hub_source import open_hub

        return open_hub(name, cache_dir() / "hub", progress)

    return FileModelStore(demo, hub)


def verify_model(model: str, options: VerifyOptions, tell: Tell, opening: Progress) -> Report:
    """Run every cut of a model against the whole, here and now. Blocks until it is done.

    Raises:
        ModelUnknown, ModelUnusable: the model cannot be read or run.
        UsageError: it is not computed in this contract or on this device, or does not fit.
    """
    device = find_device(options.device, options.threads)
    source = model_store().open(model, opening)
    contract = options.contract or device.usual
    check_computed(device.kind, contract)
    shape = source.shape(contract)
    prompts = sample_prompts(_words_of(source), shape.vocab, shape.context - options.tokens)
    capacity = options.memory or default_capacity(device.free)
    against = options.against_library
    if against is None:
        size = source.shape("fp32").weight_bytes(Slice(0, shape.layers))
        against = contract == "fp32" and size <= min(capacity, SMALL_MODEL)
    _warm(device)
    from diffuse_core.adapters.executor.verify import Verification

    work = Verification(source, contract, device, prompts, options.tokens, tell)
    return work.run(capacity, against_library=against)


def _words_of(source: WeightSource) -> Tokenizer | None:
    """The model's tokenizer; without its chat template, which takes a process of its own."""
    try:
        data = source.bundle()
    except ModelUnusable:
        return None
    bundle = open_bundle(data, bundle_digest(data))
    return _load_tokenizer(msgspec.structs.replace(bundle, chat_template=None))


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
    with StateLock(options.state):
        identity = load_identity(options.state, IDENTITY_KEY)
        owner = load_identity(options.state, OWNER_KEY)
        async with contextlib.AsyncExitStack() as stack:
            node = Node(
                identity,
                await open_transport(identity, options.network),
                SystemClock(),
                _rng(),
                role=options.role,
                version=__version__,
                target_replicas=options.target_replicas,
                allowed=options.network.allowed,
                owner=owner.node,
            )
            stack.push_async_callback(node.stop)
            address = await _listen(node, options)
            _announce(storage, node, address)
            stack.callback(storage.delete, NODE_FILE)
            hope = await find_others(
                node, storage, options.network, options.bootstrap, address, stack
            )
            await _serve(node, owner.node, options, hope, stop, stack)


async def _listen(node: Node, options: NodeOptions) -> str:
    asked = options.listen
    ports = [asked[1]] if asked else range(DEFAULT_PORT, DEFAULT_PORT + PORT_TRIES)
    host = asked[0] if asked else WILDCARDS[0]
    reachable = options.public or ((host,) if host not in WILDCARDS else interface_addresses())
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


def _announce(storage: FileStorage, node: Node, address: str) -> None:
    host, _, port = address.rpartition(":")
    local = f"127.0.0.1:{port}" if host.strip("[]") in WILDCARDS else address
    found = NodeFile(local, node_text(node.id), os.getpid())
    storage.write(NODE_FILE, msgspec.json.encode(found))


async def _serve(
    node: Node,
    owner: NodeId,
    options: NodeOptions,
    hope: float,
    stop: asyncio.Event,
    stack: contextlib.AsyncExitStack,
) -> None:
    hardware = SystemHardware()
    cache = FileStorage(cache_dir() / "bundles")
    client = ClientService(node, cache, _load_tokenizer, _rng(), node.id)
    host: HostService | None = None
    work: list[asyncio.Task[None]] = []
    if options.host is not None:
        compute = ComputeThread()
        stack.callback(compute.close)
        choice = partial(find_device, options.device, options.threads)
        host = HostService(node, choice, model_store(), _load_slice, compute, options.host)
        life = _live(host, node, hope)
        work.append(asyncio.create_task(life, name="host"))
    ending = Ending(host.leave if host is not None else None)
    stack.push_async_callback(ending.close)
    work.append(asyncio.create_task(ending.over(stop), name="end"))
    feed = FeedService(node, hardware, client, owner, ending.ask, host)
    stack.push_async_callback(feed.close)
    try:
        done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in work:
            task.cancel()
        await asyncio.wait(work, timeout=5)


async def _live(host: HostService, node: Node, hope: float) -> None:
    if 0 < hope < math.inf:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(hope):
                await node.joined.wait()
    await host.run(alone=hope < math.inf, warm=_warm)


@contextlib.asynccontextmanager
async def observe(
    places: Places | tuple[str, ...], network: NetworkOptions = PUBLIC
) -> AsyncIterator[tuple[Observer, ClientService]]:
    """A look at the network, and a client on it, that leave no trace.

    It is somebody new each time, but the owner of its state directory where only nodes of an
    allow list may ask.

    Raises:
        Unreachable: no node answers.
        Refused: those that answer do not allow it.
    """
    where = places if isinstance(places, Places) else Places(places)
    observer = await find_network(where, network)
    try:
        cache = FileStorage(cache_dir() / "bundles")
        yield observer, ClientService(observer, cache, _load_tokenizer, _rng())
    finally:
        await observer.close()


async def attach(state: Path, network: NetworkOptions = PUBLIC) -> NodeAttachment:
    """Attach to the node that runs with this state directory, as its owner.

    Raises:
        Unreachable: none runs there, or it does not answer.
    """
    found = running_node(state)
    if found is None:
        raise Unreachable(
            f"no node runs with the state directory {state}; start one with `diffuse host`, "
            "`diffuse sentinel` or `diffuse-tui`"
        )
    owner = load_identity(state, OWNER_KEY)
    attachment = NodeAttachment(await open_transport(owner, network))
    try:
        await attachment.open(found.address, NodeId(bytes.fromhex(found.node)))
    except BaseException:
        await attachment.close()
        raise
    return attachment


def own_command(*arguments: str) -> list[str]:
    """The command line that runs a `diffuse` command with this very installation."""
    return [sys.executable, "-m", "diffuse_core", *arguments]
