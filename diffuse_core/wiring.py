"""The composition root: observers, attachments, and what a Slice is computed with.

What a node process consists of is in `running`.

torch is loaded only when a Slice is (through `open_slice`), and only on the executor thread.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.adapters.file_storage import FileStorage, lock_holder, read_identity
from diffuse_core.adapters.hardware import SystemHardware
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.domain.bundle import bundle_digest, open_bundle
from diffuse_core.domain.identity import Identity, NodeId
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable, Unreachable, UsageError
from diffuse_core.finding import OWNER_KEY, find_network, open_transport
from diffuse_core.services.attachment import NodeAttachment
from diffuse_core.services.client import ClientService
from diffuse_core.services.devices import (
    check_computed,
    choose_device,
    default_capacity,
    usual_contract,
)
from diffuse_core.services.verification import sample_prompts
from diffuse_core.settings import (
    PUBLIC,
    NetworkOptions,
    Places,
    cache_dir,
    running_node,
    state_dir,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from diffuse_core.adapters.models.hub_name import HubName
    from diffuse_core.adapters.models.store import FileModelStore
    from diffuse_core.domain.bundle import Bundle
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import DeviceKind, Executor, Progress, WeightSource
    from diffuse_core.ports import Tokenizer
    from diffuse_core.services.devices import Device
    from diffuse_core.services.kept_network import KeptNetwork
    from diffuse_core.services.observer import Observer
    from diffuse_core.services.own_layers import OwnLayers
    from diffuse_core.services.own_stages import OwnStages
    from diffuse_core.services.verification import Report, Tell
    from diffuse_core.settings import NodeFile

SMALL_MODEL = 4 * 2**30
"""Up to so many bytes in fp32 a verification also runs the library's own model."""


@dataclass(frozen=True)
class VerifyOptions:
    """How to verify a model. None leaves the choice to the machine and the model."""

    contract: Contract | None = None
    device: DeviceKind | None = None
    threads: int | None = None
    memory: int | None = None
    tokens: int = 24
    against_library: bool | None = None


def fresh_rng() -> random.Random:
    """A source of chance that nobody can foresee; not for secrets."""
    return random.Random(int.from_bytes(os.urandom(16)))  # noqa: S311  (spreads load, no secret)


def open_tokenizer(bundle: Bundle) -> Tokenizer:
    """The tokenizer in a bundle."""
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


def open_slice(
    source: WeightSource,
    part: Slice,
    contract: Contract,
    progress: Progress,
    *,
    device: DeviceKind,
) -> Executor:
    """Load what computes a Slice (see model_ports); on the executor thread only."""
    _load_torch("diffuse_core.adapters.executor.loader")
    from diffuse_core.adapters.executor.blueprints import Blueprints
    from diffuse_core.adapters.executor.loader import load_slice

    kept = Blueprints(_blueprint_storage())
    return load_slice(source, part, contract, progress, device=device, blueprints=kept)


def _blueprint_storage() -> FileStorage | None:
    # A node that runs goes on, whatever became of its settings or its cache meanwhile.
    with contextlib.suppress(UsageError):
        return FileStorage(cache_dir() / "blueprints")
    return None


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


def warm_up(device: Device) -> None:
    """Load torch, and set how many threads it computes with."""
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
    contract = options.contract or usual_contract(source, device)
    check_computed(device.kind, contract)
    shape = source.shape(contract)
    prompts = sample_prompts(_words_of(source), shape.vocab, shape.context - options.tokens)
    capacity = options.memory or default_capacity(device.free)
    against = options.against_library
    if against is None:
        size = source.shape("fp32").weight_bytes(Slice(0, shape.layers))
        against = contract == "fp32" and size <= min(capacity, SMALL_MODEL)
    warm_up(device)
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
    return open_tokenizer(msgspec.structs.replace(bundle, chat_template=None))


def own_layers(
    named: str | None,
    tell: Callable[[str], object],
    progress: Callable[[str, float], object],
    threads: int | None = None,
) -> OwnLayers:
    """Layers that a client runs itself; loaded when they are needed, and until they are closed.

    `named` is where the weights are, None where the model's name tells. They compute with
    `threads`, None for as many as suit the machine.
    """
    from diffuse_core.services.own_layers import Means, OwnLayers

    chosen: list[Device] = []

    def choose(asked: DeviceKind | None) -> Device:
        chosen[:] = [find_device(asked, threads)]
        return chosen[0]

    def load(
        source: WeightSource,
        part: Slice,
        contract: Contract,
        progress: Progress,
        *,
        device: DeviceKind,
    ) -> Executor:
        # Only now: what is refused before is refused without torch.
        warm_up(chosen[0])
        return open_slice(source, part, contract, progress, device=device)

    return OwnLayers(Means(choose, model_store(), load, tell, progress), named)


@contextlib.asynccontextmanager
async def observe(
    places: Places | tuple[str, ...],
    network: NetworkOptions = PUBLIC,
    layers: OwnLayers | None = None,
) -> AsyncIterator[tuple[Observer, ClientService]]:
    """A look at the network, and a client on it, that leave no trace.

    It is somebody new each time, but the owner of its state directory where only nodes of an
    allow list may ask. With `layers` it can run a part of a model itself.

    Raises:
        Unreachable: no node answers.
        Refused: those that answer do not allow it.
    """
    where = places if isinstance(places, Places) else Places(places)
    observer = await find_network(where, network)
    stages = _own_stages(observer, layers)
    try:
        yield observer, _client_on(observer, where, stages)
    finally:
        if stages is not None:
            await stages.close()
        await observer.close()


@contextlib.asynccontextmanager
async def keep_network(
    where: Places, network: NetworkOptions = PUBLIC, layers: OwnLayers | None = None
) -> AsyncIterator[KeptNetwork]:
    """As `observe`, for a process that goes on: the network is looked at again, and found again.

    Raises:
        Unreachable: no node answers, to begin with.
        Refused: those that answer do not allow it.
    """
    from diffuse_core.services.kept_network import KeptNetwork

    found = [await find_network(where, network)]
    async with contextlib.AsyncExitStack() as stack:

        async def find() -> Observer:
            return found.pop() if found else await find_network(where, network)

        def client(observer: Observer) -> ClientService:
            stages = _own_stages(observer, layers)
            if stages is not None:
                stack.push_async_callback(stages.close)
            return _client_on(observer, where, stages)

        kept = KeptNetwork(find, client, SystemClock())
        stack.push_async_callback(kept.close)
        kept.start()
        # Only now there is somebody to close what was found.
        await kept.view()
        yield kept


def _client_on(observer: Observer, where: Places, stages: OwnStages | None) -> ClientService:
    cache = FileStorage(cache_dir() / "bundles")
    kept = FileStorage(where.state or state_dir(None))
    return ClientService(
        observer, cache, open_tokenizer, fresh_rng(), own_stages=stages, quarantine=kept
    )


def _own_stages(observer: Observer, layers: OwnLayers | None) -> OwnStages | None:
    if layers is None or observer.own is None:
        return None
    from diffuse_core.services.own_stages import OwnStages

    return OwnStages(observer.own, observer.links, observer.clock, layers)


async def attach(state: Path, network: NetworkOptions = PUBLIC) -> NodeAttachment:
    """Attach to the node that runs with this state directory, as its owner.

    Raises:
        Unreachable: none runs there, or it does not answer.
    """
    found = running_node(state)
    if found is None:
        raise Unreachable(
            "no node runs here: start one with `diffuse host` or `diffuse-tui` (the state "
            f"directory is {state})"
        )
    # Where it is gone none is made: either no node runs, or it tells that we are not its owner.
    owner = read_identity(state, OWNER_KEY) or Identity(os.urandom(32))
    attachment = NodeAttachment(await open_transport(owner, network))
    try:
        await attachment.open(found.address, NodeId(bytes.fromhex(found.node)))
    except BaseException as error:
        await attachment.close()
        # A process that has the number of one that died must not be ended for it.
        if isinstance(error.__cause__, TimeoutError) and lock_holder(state) == found.pid:
            raise silent(found) from error
        raise
    return attachment


def silent(found: NodeFile) -> Unreachable:
    """What to tell of a node that runs here and does not answer."""
    import psutil

    what = f"the node that runs here does not answer: process {found.pid}, {found.address}"
    with contextlib.suppress(psutil.Error):
        if psutil.Process(found.pid).status() == psutil.STATUS_STOPPED:
            return Unreachable(
                f"{what}. It was suspended: let it go on with `kill -CONT {found.pid}`, or end "
                f"it with `kill -9 {found.pid}`"
            )
    return Unreachable(f"{what}. Try again, or end it with `kill {found.pid}`")


def own_command(*arguments: str) -> list[str]:
    """The command line that runs a `diffuse` command with this very installation."""
    return [sys.executable, "-m", "diffuse_core", *arguments]
