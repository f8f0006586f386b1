"""The feed: what a node shows to its owner, and does for them. Nobody else is listened to."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.narration import audit_text, healed_text, quarantine_lines
from diffuse_core.domain.owner_messages import (
    CancelGenerate,
    Generate,
    Generated,
    NotAllowed,
    StopNode,
    Subscribe,
    Update,
)
from diffuse_core.domain.view import (
    Audited,
    Event,
    EventLevel,
    Failed,
    FeedUpdate,
    GenerateEvent,
    Healed,
    NetworkView,
    NodeView,
    Telemetry,
)
from diffuse_core.errors import ChannelClosed, DiffuseError
from diffuse_core.services.counted_answers import counted
from diffuse_core.services.loop_lag import Lags, LoopLag
from diffuse_core.services.quarantine import marked
from diffuse_core.services.sensing import Sensing
from diffuse_core.services.tally import AnswerTally
from diffuse_core.services.tasks import Dropped, TaskOwner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from diffuse_core.ports import Hardware, Sensors, SensorSample
    from diffuse_core.services.client import ClientService
    from diffuse_core.services.host import HostService
    from diffuse_core.services.links import Link
    from diffuse_core.services.node import Node
    from diffuse_core.services.relay import RelayService

log = logging.getLogger(__name__)

TICK_S = 1.0
MAX_GENERATIONS = 16
MAX_MODELS, MAX_NODES = 128, 2048
"""In a picture that would be too large for one frame."""
OWNER_ONLY = "only this node's owner may ask that"
"""All that anybody else ever gets to hear, whatever they sent."""


class FeedService:
    """Serves the owner: updates, generations, stop.

    Args:
        node: the node that is served.
        hardware: what the machine is measured with.
        client: what generates on the owner's behalf.
        owner: the only node id that is listened to.
        stop: called with how many seconds Sessions may take to finish; None leaves it to the Host.
        host: the Host that this node is, if it is one.
        relay: what this node does for others, if it is a Sentinel.
        sensors: what GPUs and temperatures are measured with, if at all.
    """

    def __init__(
        self,
        node: Node,
        hardware: Hardware,
        client: ClientService,
        owner: NodeId,
        stop: Callable[[float | None], None],
        host: HostService | None = None,
        relay: RelayService | None = None,
        sensors: Sensors | None = None,
    ) -> None:
        self._node = node
        self._hardware = hardware
        self._client = client
        self._owner = owner
        self._stop = stop
        self._host = host
        self._relay = relay
        self._sensing = Sensing(sensors, node.clock)
        self._started = node.clock.monotonic()
        self._tasks = TaskOwner("feed")
        self._running: dict[tuple[Link, int], asyncio.Task[None]] = {}
        self._streams: dict[Link, asyncio.Task[None]] = {}
        self._last_traffic = (self._started, 0, 0)
        self._standings: Mapping[str, str] | None = None
        self._strangers = Dropped("refused what only the owner may ask; last to node")
        self._lag = LoopLag()
        self._lag.start()
        self.tally = AnswerTally()
        links = node.links
        links.handle(Subscribe, self._on_subscribe)
        links.handle(Generate, self._on_generate)
        links.handle(CancelGenerate, self._on_cancel)
        links.handle(StopNode, self._on_stop)
        links.handle(Update, self._on_misdirected)
        links.handle(Generated, self._on_misdirected)
        links.on_ended(self._on_ended)

    async def close(self) -> None:
        """End all streams and generations."""
        self._lag.stop()
        await self._tasks.close()

    def lags(self) -> Lags:
        """How late the event loop is."""
        return self._lag.lags()

    def sensed(self) -> SensorSample:
        """What the sensors told last; see Sensing."""
        return self._sensing.latest()

    async def _allowed(self, link: Link) -> bool:
        if link.remote == self._owner:
            return True
        # One line a minute, whoever asks and how often: a stranger must not fill the log.
        now = self._node.clock.monotonic()
        self._strangers.count(log, now, short_text(link.remote))
        await link.send(NotAllowed(OWNER_ONLY))
        return False

    # --- updates ----------------------------------------------------------------------

    async def _on_subscribe(self, link: Link, _message: Subscribe, _body: memoryview) -> None:
        if not await self._allowed(link) or link in self._streams:
            return
        task = self._tasks.spawn(self._stream(link), "updates")
        if task is not None:
            self._streams[link] = task

    async def _stream(self, link: Link) -> None:
        seen = max(0, self._node.event_count - len(self._node.events))
        try:
            while True:
                fresh = min(self._node.event_count - seen, len(self._node.events))
                events = tuple(self._node.events)[-fresh:] if fresh else ()
                seen = self._node.event_count
                await self._send(link, self.update(events))
                await asyncio.sleep(TICK_S)
        except ChannelClosed:
            return

    async def _send(self, link: Link, update: FeedUpdate) -> None:
        for view in pictures(update.view):
            with suppress(ValueError):
                await link.send(Update(msgspec.structs.replace(update, view=view)))
                return

    def update(self, events: tuple[Event, ...] = ()) -> FeedUpdate:
        """The picture of this moment."""
        standings = self._client.quarantine.standings()
        # Commands on this machine audit as well, and write to the same list.
        before, self._standings = self._standings, standings
        for level, text in quarantine_lines(before, standings) if before is not None else ():
            self._node.note(level, text)
        view = marked(self._node.view(), standings)
        return FeedUpdate(view=view, telemetry=self._telemetry(), events=events)

    def _telemetry(self) -> Telemetry:
        now = self._node.clock.monotonic()
        sample = self._hardware.sample()
        sensed = self._sensing.latest()
        before, bytes_in, bytes_out = self._last_traffic
        traffic = self._node.links.traffic
        span = max(now - before, 0.001)
        rates = (traffic.bytes_in - bytes_in) / span, (traffic.bytes_out - bytes_out) / span
        self._last_traffic = (now, traffic.bytes_in, traffic.bytes_out)
        host = self._host
        stage = host.stage if host is not None else None
        lags = self._lag.lags()
        return Telemetry(
            cpu_percent=sample.cpu_percent,
            cpu_count=sample.cpu_count,
            memory_total=sample.memory_total,
            memory_available=sample.memory_available,
            process_rss=sample.process_rss,
            uptime_s=now - self._started,
            device=host.device if host is not None else "cpu",
            model=host.model.id if host is not None and host.model is not None else None,
            slice=host.slice if host is not None else None,
            stage=host.phase_text() if host is not None else "holds no slice",
            weight_bytes=stage.weight_bytes if stage is not None else 0,
            kv_used=stage.kv_used if stage is not None else 0,
            kv_budget=stage.kv_budget if stage is not None else 0,
            sessions=stage.sessions if stage is not None else 0,
            tokens_per_s=stage.meter.tokens_per_s() if stage is not None else 0.0,
            bytes_in_per_s=round(rates[0], 1),
            bytes_out_per_s=round(rates[1], 1),
            bytes_in=traffic.bytes_in,
            bytes_out=traffic.bytes_out,
            loop_lag_p50_s=round(lags.p50_s, 4),
            loop_lag_p99_s=round(lags.p99_s, 4),
            loop_lag_max_s=round(lags.max_s, 4),
            loop_lag_ever_p99_s=round(lags.ever_p99_s, 4),
            loop_lag_ever_max_s=round(lags.ever_max_s, 4),
            tasks=len(asyncio.all_tasks()),
            open_files=sample.open_files,
            relay=self._relay.figures() if self._relay is not None else None,
            gpus=sensed.gpus,
            temperatures=sensed.temperatures,
            disk_free=sensed.disk_free,
            progress=host.where.progress() if host is not None else None,
            reason=host.where.reason if host is not None else "",
        )

    # --- generations ------------------------------------------------------------------

    async def _on_generate(self, link: Link, message: Generate, _body: memoryview) -> None:
        if not await self._allowed(link):
            return
        key = (link, message.request)
        if key in self._running or len(self._running) >= MAX_GENERATIONS:
            refusal = Failed("too many generations run for you already; wait for one to end", 6)
            await link.send(Generated(message.request, refusal))
            return
        task = self._tasks.spawn(self._generate(link, message), "generate")
        if task is not None:
            self._running[key] = task
            task.add_done_callback(lambda _: self._running.pop(key, None))

    async def _generate(self, link: Link, message: Generate) -> None:
        try:
            whole = counted(self.tally, self._client.generate(message.ask))
            async with aclosing(whole) as events:
                async for event in events:
                    await link.send(Generated(message.request, event))
                    self._tell(event)
        except ChannelClosed as error:
            if not link.closed:
                await link.send(Generated(message.request, Failed(str(error), error.exit_code)))
        except DiffuseError as error:
            await link.send(Generated(message.request, Failed(str(error), error.exit_code)))
        except Exception as error:
            log.exception("a generation failed")
            text = f"a defect of Diffuse stopped the generation: {type(error).__name__}"
            await link.send(Generated(message.request, Failed(text, 1)))

    def _tell(self, event: GenerateEvent) -> None:
        """Note what the network did in an answer, beside telling whoever asked."""
        if isinstance(event, Audited) and event.accuses:
            level: EventLevel = "error" if event.quarantined else "warning"
            self._node.note(level, f"audit: {audit_text(event)}")
            # That is told.
            self._standings = self._client.quarantine.standings()
        elif isinstance(event, Healed):
            self._node.note("good", healed_text(event))

    async def _on_cancel(self, link: Link, message: CancelGenerate, _body: memoryview) -> None:
        if not await self._allowed(link):
            return
        task = self._running.get((link, message.request))
        if task is not None:
            task.cancel()

    async def _on_misdirected(
        self, link: Link, _message: Update | Generated, _body: memoryview
    ) -> None:
        """What a node says to its owner means nothing here, whoever sends it."""
        await self._allowed(link)

    async def _on_stop(self, link: Link, message: StopNode, _body: memoryview) -> None:
        if await self._allowed(link):
            self._node.note("info", "asked to stop by its owner")
            self._stop(message.patience)

    def _on_ended(self, link: Link) -> None:
        stream = self._streams.pop(link, None)
        if stream is not None:
            stream.cancel()
        for (owner, _), task in list(self._running.items()):
            if owner is link:
                task.cancel()


def pictures(view: NetworkView) -> Iterator[NetworkView]:
    """The picture, then smaller ones, for where it does not fit a frame.

    Thousands of strangers may say as much of themselves as a record can hold. First the addresses
    go, and the models that few Hosts hold; then nodes, the dead and those that hold nothing first.
    The last one always fits.
    """
    yield view
    nodes = tuple(msgspec.structs.replace(node, addresses=(), relays=()) for node in view.nodes)
    models = sorted(view.models, key=lambda model: -model.hosts)[:MAX_MODELS]
    yield msgspec.structs.replace(view, nodes=nodes, models=tuple(models))
    kept = sorted(nodes, key=_weight)[:MAX_NODES]
    kept.sort(key=lambda node: node.node)
    yield msgspec.structs.replace(view, nodes=tuple(kept), models=tuple(models))


def _weight(node: NodeView) -> tuple[bool, bool, bool]:
    return not node.me, node.liveness == "dead", node.slice is None
