"""The host: finds its Slice, loads it, serves it, and moves when it is needed elsewhere."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from diffuse_core.domain.coverage import models
from diffuse_core.domain.needs import Means
from diffuse_core.domain.records import Load, ModelRef
from diffuse_core.domain.session_memory import least_room
from diffuse_core.services import placement as placements
from diffuse_core.services.bundles import BundleShelf
from diffuse_core.services.devices import check_computed, default_capacity
from diffuse_core.services.host_phase import HostPhase
from diffuse_core.services.model_choice import (
    AUTO,
    ModelSearch,
    choose_contract,
    computed,
    reference,
)
from diffuse_core.services.model_watch import ModelWatch
from diffuse_core.services.pass_clock import round_trips
from diffuse_core.services.placement import Placement
from diffuse_core.services.stage import StageService
from diffuse_core.services.tally import StageTally
from diffuse_core.services.turning_away import turn_away

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from diffuse_core.domain.planner import Plan
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import (
        DeviceKind,
        Executor,
        ExecutorLoader,
        ModelStore,
        Progress,
        WeightSource,
    )
    from diffuse_core.services.compute import ComputeThread
    from diffuse_core.services.devices import Device, DeviceChoice
    from diffuse_core.services.node import Node

log = logging.getLogger(__name__)

JOIN_WAIT_S = 6.0
REPORT_S = 2.0


class Interrupted(Exception):  # noqa: N818
    """Raised inside blocking work to end it early."""


@dataclass(frozen=True)
class HostOptions:
    """What the user asked for. `model` may be AUTO; `memory` in bytes, None asks the device."""

    model: str
    contract: Contract | None = None
    memory: int | None = None
    max_layers: int | None = None


class _Watched:
    """A source whose downloads are told apart from the rest of a load."""

    def __init__(self, source: WeightSource, tell: Progress) -> None:
        self._source = source
        self._tell = tell

    def fetch(self, names: Collection[str], _progress: Progress) -> None:
        self._source.fetch(names, self._tell)

    def __getattr__(self, name: str) -> object:
        return getattr(self._source, name)


def _watched(source: WeightSource, tell: Progress) -> WeightSource:
    return cast("WeightSource", _Watched(source, tell))


class HostService:
    """The life of a Host. `where` tells what it is doing."""

    def __init__(
        self,
        node: Node,
        device: DeviceChoice,
        store: ModelStore,
        load: ExecutorLoader,
        compute: ComputeThread,
        options: HostOptions,
    ) -> None:
        self._node = node
        self._choose_device = device
        self._store = store
        self._load = load
        self._compute = compute
        self._options = options
        self._interrupted = False
        self.leaving = False
        self._leave_by = math.inf
        self.where = HostPhase()
        self.device: DeviceKind = "cpu"
        self.model: ModelRef | None = None
        self.slice: Slice | None = None
        self.stage: StageService | None = None
        self.load = Load()
        self.tally = StageTally()
        self.ready = asyncio.Event()
        self._placement: Placement | None = None
        self._serving: _Serving | None = None

    async def run(self, *, alone: bool, warm: Callable[[Device], object] | None = None) -> None:
        """Serve until cancelled. `alone` says that there is no bootstrap to wait for.

        `warm` imports what loading will need, while claims settle.

        Raises:
            ModelUnknown, ModelUnusable: the model cannot be read.
            UsageError: the memory cap is too small, there is no such device, or it does not
                compute the contract.
        """
        try:
            self.where.enter("choosing a device")
            device = await self._compute.run(self._choose_device)
            self.device = device.kind
            self._compute.in_loop = device.kind != "cpu" or device.threads == 1
            capacity = self._options.memory
            if capacity is None:
                capacity = default_capacity(device.free)
            self._node.offer(capacity)
            watch: ModelWatch | None = None
            following: WeightSource | None
            if self._options.model == AUTO:
                following, watch = await self._find(device, capacity, alone=alone)
            else:
                following = await self._read(device, alone=alone)
            while following is not None:
                following = await self._take_part(following, device, capacity, warm, watch)
        finally:
            self._interrupted = True
            if self.stage is not None:
                await self.stage.close()

    async def leave(self, patience: float | None = None) -> None:
        """Let the Sessions that run here finish, within a bounded time; then `run` ends.

        They have `patience` seconds, None for what a Host usually gives. Asked more than once, who
        asks for the earliest end is heeded.
        """
        now = self._node.clock.monotonic()
        self.leaving = True
        seconds = placements.STOP_S if patience is None else patience
        self._leave_by = min(self._leave_by, now + seconds)
        if self._placement is not None and self._serving is not None:
            await self._placement.leave(self._serving, self._leave_by - now)

    async def _take_part(
        self,
        source: WeightSource,
        device: Device,
        capacity: int,
        warm: Callable[[Device], object] | None,
        watch: ModelWatch | None,
    ) -> WeightSource | None:
        """Find a Slice of the model and serve it; what to serve instead, None at the end."""
        model = self._known_model()
        placement = Placement(self._node, model, capacity, self._options.max_layers, REPORT_S)
        placement.plan()
        if warm is not None:
            self._compute.post(lambda: warm(device))
        self.where.enter("claiming a slice")
        serving = _Serving(self, source, capacity, device)
        self._placement, self._serving = placement, serving
        if watch is None:
            await placement.run(serving)
            return None
        life = asyncio.create_task(placement.run(serving), name="placement")
        look = asyncio.create_task(watch.needed_elsewhere(model), name="model watch")
        try:
            await asyncio.wait((life, look), return_when=asyncio.FIRST_COMPLETED)
            if life.done():
                await life
                return None
            following, other = await look
            await placement.leave(serving)
            await life
            self.model = other
            self._tell_device(device, other.contract)
            return None if self.leaving else following
        finally:
            for task in (life, look):
                task.cancel()
            await asyncio.gather(life, look, return_exceptions=True)

    async def _join(self) -> None:
        try:
            async with asyncio.timeout(JOIN_WAIT_S):
                await self._node.joined.wait()
        except TimeoutError:
            self._node.note(
                "warning",
                "no bootstrap node answered yet: this host goes on alone and keeps trying",
            )

    async def _read(self, device: Device, *, alone: bool) -> WeightSource:
        """Open the model that was named, and settle its contract."""
        self.where.enter("reading the model", "reading")
        source = await asyncio.to_thread(self._store.open, self._options.model, self._tell)
        if not alone:
            await self._join()
        contract = self._options.contract
        if contract is None:
            contract = choose_contract(source, models(self._node.members()), device)
        else:
            check_computed(device.kind, contract)
        self.model = await asyncio.to_thread(reference, source, contract)
        self._tell_device(device, contract)
        return source

    async def _find(
        self, device: Device, capacity: int, *, alone: bool
    ) -> tuple[WeightSource, ModelWatch]:
        """Wait for the model of the network that needs this Host most, and open it."""
        if self._options.contract is not None:
            check_computed(device.kind, self._options.contract)
        self.where.enter("looking for a model")
        self._node.hold(None)
        if not alone:
            await self._join()
        means = Means(
            own=self._node.id,
            capacity=capacity,
            contracts=computed(device.kind, self._options.contract),
            max_layers=self._options.max_layers,
            target_replicas=self._node.target_replicas,
        )
        search = ModelSearch(self._node, self._store, means, self._tell, self.where.enter)
        source, self.model = await search.find()
        self._tell_device(device, self.model.contract)
        return source, ModelWatch(self._node, means, search)

    def _tell_device(self, device: Device, contract: Contract) -> None:
        threads = f"{device.threads} thread{'s' if device.threads > 1 else ''}"
        self._node.note("info", f"computes with {threads} in {contract} on {device.kind}")

    async def serve(
        self, source: WeightSource, chosen: Plan, capacity: int, device: Device
    ) -> None:
        """Load the chosen Slice and serve it."""
        model = self._known_model()
        self.slice = chosen.slice
        self._node.note("info", f"takes layers {chosen.slice} of {model.id}: {chosen.reason}")
        self.where.begin(chosen)
        watched = _watched(source, self._tell_download)
        executor = await self._compute.run(
            lambda: self._load(
                watched, chosen.slice, model.contract, self._tell, device=device.kind
            )
        )
        self.stage = self._open_stage(executor, model, capacity)
        BundleShelf(self._node.links, source.bundle())
        self.enter_ready()
        self._node.note("good", f"ready: layers {chosen.slice} of {model.shape.layers}")

    def enter_ready(self) -> None:
        """The Slice is served."""
        self.where.enter("ready")
        self.ready.set()

    def enter_draining(self) -> None:
        """The Sessions that run are the last ones here."""
        self.where.enter("finishing its sessions")
        self.ready.clear()

    def _open_stage(self, executor: Executor, model: ModelRef, capacity: int) -> StageService:
        budget = max(
            capacity - executor.weight_bytes,
            len(executor.slice) * model.shape.kv_reserve(),
            least_room(model.shape, model.contract, executor.slice),
        )
        stage = StageService(
            self._node.id,
            self._node.links,
            self._node.clock,
            self._compute,
            executor,
            model,
            budget,
            self.tally,
        )
        stage.round_trip = round_trips(self._node.members)
        if self._placement is not None:
            stage.on_empty = self._placement.wake
        return stage

    def report(self) -> None:
        """Publish how busy this Host is."""
        if self.stage is not None:
            self.load = Load(
                sessions=self.stage.sessions,
                kv_used=self.stage.kv_used,
                kv_budget=self.stage.kv_budget,
                tokens_per_s=self.stage.meter.tokens_per_s(),
                step_ms=self.stage.meter.step_ms(),
                wait_ms=self.stage.meter.wait_ms(),
            )
            self._node.report(self.load)

    def turn_away(self) -> None:
        """Refuse Sessions again: no Slice is served any more."""
        turn_away(self._node.links, self._node.id, self._node.clock)

    def _known_model(self) -> ModelRef:
        if self.model is None:
            raise RuntimeError("the model is read before anything is held")
        return self.model

    def _tell(self, fraction: float) -> None:
        if self._interrupted:
            raise Interrupted
        self.where.fraction = fraction

    def _tell_download(self, fraction: float) -> None:
        if self._interrupted:
            raise Interrupted
        self.where.downloaded(fraction)

    def phase_text(self) -> str:
        """Where the host is, for people."""
        if self.leaving:
            left = 0 if self.stage is None else self.stage.sessions
            return f"leaving: {left} session{'' if left == 1 else 's'} left" if left else "leaving"
        if 0.0 < self.where.fraction < 1.0:
            return f"{self.where.text}, {self.where.fraction:.0%}"
        return self.where.text


class _Serving:
    """What a Host does for its placement: loads, drains and leaves its Slice."""

    def __init__(
        self, host: HostService, source: WeightSource, capacity: int, device: Device
    ) -> None:
        self._host = host
        self._source = source
        self._capacity = capacity
        self._device = device

    @property
    def sessions(self) -> int:
        return 0 if self._host.stage is None else self._host.stage.sessions

    @property
    def stuck(self) -> bool:
        return self._host.stage is None or self._host.stage.stuck

    async def load(self, plan: Plan) -> None:
        await self._host.serve(self._source, plan, self._capacity, self._device)

    def drain(self) -> None:
        if self._host.stage is not None:
            self._host.enter_draining()
            self._host.stage.drain()

    def resume(self) -> None:
        if self._host.stage is not None:
            self._host.stage.resume()
            self._host.enter_ready()

    async def unload(self) -> None:
        self._host.ready.clear()
        if self._host.stage is not None:
            await self._host.stage.close()
            self._host.turn_away()
        self._host.stage = None
        self._host.slice = None
        self._host.where.withdrawn()

    def report(self) -> None:
        self._host.report()
