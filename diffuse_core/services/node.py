"""The node: listens, keeps links, and pumps the gossip state machine."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from diffuse_core.domain.allow_list import without_strangers
from diffuse_core.domain.exchange import BUSY
from diffuse_core.domain.gossip import Gossip
from diffuse_core.domain.identity import Identity, NodeId, node_text, short_text
from diffuse_core.domain.messages import (
    Ack,
    GossipMessage,
    Ping,
    PingRequest,
    Pull,
    Push,
    Summary,
    Want,
)
from diffuse_core.domain.observe import Sayings, network_view
from diffuse_core.domain.owner_messages import NotAllowed
from diffuse_core.domain.records import Holding, Load, Record, record_node
from diffuse_core.domain.relayed_address import is_relayed
from diffuse_core.domain.view import Event, EventLevel, NetworkView
from diffuse_core.services.deliveries import Deliveries
from diffuse_core.services.discovery import RETELL_S, Discovery
from diffuse_core.services.links import Link, Links
from diffuse_core.services.places import sentinel_addresses
from diffuse_core.services.tasks import TaskOwner
from diffuse_core.services.turning_away import turn_away

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from diffuse_core.domain.members import Member
    from diffuse_core.domain.roles import Role
    from diffuse_core.domain.roster import RosterCounts
    from diffuse_core.ports import Channel, Clock, Listener, Transport

log = logging.getLogger(__name__)

MAX_TICK_S = 1.0
MAX_EVENTS = 256


class Node:
    """One participant. Services add handlers to `links` and read `members()`.

    With `allowed` it talks to these nodes and to its `owner` only, and nobody else is a member.
    """

    def __init__(
        self,
        identity: Identity,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        *,
        role: Role,
        version: str,
        target_replicas: int = 2,
        allowed: frozenset[NodeId] | None = None,
        owner: NodeId | None = None,
    ) -> None:
        self.identity = identity
        self.id = identity.node
        self.clock = clock
        self._allowed = None if allowed is None else allowed | {identity.node}
        company = None if self._allowed is None else self._allowed | {owner or identity.node}
        self.links = Links(transport, identity.node, company)
        self.tasks = TaskOwner("node")
        self.discovery = Discovery(self, rng)
        self._refused_at: float | None = None
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.event_count = 0
        self.target_replicas = target_replicas
        self._transport = transport
        self._rng = rng
        self._role: Role = role
        self._version = version
        self._gossip = Gossip(identity, rng, boot_ms=int(clock.wall() * 1000))
        self._deliveries = Deliveries(self)
        self._sayings = Sayings()
        self._wake = asyncio.Event()
        self._pumping: asyncio.Task[None] | None = None
        self._listener: Listener | None = None
        self._addresses: tuple[str, ...] = ()
        self._capacity = 0
        self._holding: Holding | None = None
        self._load = Load()
        self.joined = asyncio.Event()
        turn_away(self.links, identity.node, clock)
        self.links.handle(Ping, self._on_gossip)
        self.links.handle(Ack, self._on_gossip)
        self.links.handle(PingRequest, self._on_gossip)
        self.links.handle(Pull, self._on_gossip)
        self.links.handle(Push, self._on_gossip)
        self.links.handle(Want, self._on_gossip)
        self.links.handle(Summary, self._on_gossip)
        self.links.handle(NotAllowed, self._on_not_allowed)
        self.links.on_met(self._on_met)

    # --- life -------------------------------------------------------------------------

    async def start(
        self, host: str, port: int, bootstrap: Sequence[str], reachable_at: Sequence[str]
    ) -> str:
        """Listen, advertise and begin to gossip; returns the bound HOST:PORT.

        `reachable_at` are the hosts (or HOST:PORTs) others can dial us at; a missing port is ours.

        Raises:
            UsageError: the port is taken, or not ours to bind.
        """
        self._listener = await self._transport.listen(host, port, self._accept)
        bound = self._listener.address.rpartition(":")[2]
        self._addresses = tuple(_with_port(place, bound) for place in reachable_at)
        self._publish()
        self._pumping = self.tasks.spawn(self._pump_on(), "gossip")
        self.discovery.start(bootstrap)
        return self._listener.address

    async def stop(self) -> None:
        """Say goodbye, close everything, within a bounded time."""
        self._gossip.leave(self.clock.monotonic())
        await self._deliver_all(0.5)
        if self._listener is not None:
            await self._listener.close()
        await self.tasks.close()
        await self._deliveries.close()
        await self.links.close()

    async def _accept(self, channel: Channel) -> None:
        await self.links.accept(channel)

    # --- what this node says of itself ------------------------------------------------

    def advertise(self, addresses: Sequence[str]) -> None:
        """Tell others to reach this node at these, the best first, from now on."""
        if tuple(addresses) != self._addresses:
            self._addresses = tuple(addresses)
            self._publish()

    def hold(self, holding: Holding | None) -> None:
        """Publish what this node holds from now on."""
        self._holding = holding
        self._publish()

    @property
    def holding(self) -> Holding | None:
        """What was given to `hold` last; others learn it as soon as they take news of us."""
        return self._holding

    def report(self, load: Load) -> None:
        """Publish how busy this node is."""
        if load != self._load:
            self._load = load
            self._publish()

    def offer(self, capacity: int) -> None:
        """Set the bytes this node may hold; goes out with the next record."""
        self._capacity = capacity

    def _publish(self) -> None:
        record = Record(
            node=self.id,
            sequence=0,
            role=self._role,
            version=self._version,
            addresses=self._addresses,
            capacity=self._capacity,
            holding=self._holding,
            load=self._load,
        )
        self._gossip.set_record(record, self.clock.monotonic())
        self._wake.set()

    def introduce(self, node: NodeId) -> None:
        """Tell `node`, to which there is a link, of ourselves and ask for what it knows."""
        self._gossip.pull_from(node)
        self._wake.set()

    def pull(self) -> None:
        """Ask a few nodes for news at once, instead of waiting for the next round."""
        alive = [record_node(m.record) for m in self.members() if m.live]
        others = [node for node in alive if node != self.id]
        for node in self._rng.sample(others, min(3, len(others))):
            self._gossip.pull_from(node)
        self._wake.set()

    # --- what it knows ----------------------------------------------------------------

    def members(self) -> tuple[Member, ...]:
        """All nodes known, this one included."""
        return self._gossip.members(self.clock.monotonic())

    def gossip_counts(self) -> RosterCounts:
        """What gossip found and refused since the start."""
        return self._gossip.counts

    def addresses(self, node: NodeId) -> tuple[str, ...]:
        """Where `node` says it can be dialled."""
        return self._gossip.addresses(node)

    def sentinel_addresses(self, node: NodeId) -> tuple[str, ...] | None:
        """Where a live Sentinel says it can be dialled; () when `node` is none.

        None as long as no other node is known.
        """
        return sentinel_addresses(self.members(), self.id, node)

    def listening(self) -> tuple[str, ...]:
        """Where this node itself listens: what it is bound to, and what it tells others."""
        bound = () if self._listener is None else (self._listener.address,)
        return (*bound, *(one for one in self._addresses if not is_relayed(one)))

    def suspect(self, node: NodeId) -> None:
        """Tell the failure detector that `node` did not answer us."""
        self._gossip.unreachable(node, self.clock.monotonic())
        self._wake.set()

    async def look_again(self) -> None:
        """What this node knows is renewed by gossip."""

    def view(self) -> NetworkView:
        """The picture of the network as this node sees it."""
        return network_view(
            self.members(),
            own=self.id,
            now=self.clock.monotonic(),
            wall=self.clock.wall(),
            target_replicas=self.target_replicas,
            sayings=self._sayings,
        )

    def note(self, level: EventLevel, text: str) -> None:
        """Record an event for the owner's screen, and the log."""
        self.events.append(Event(self.clock.wall(), level, text[:512]))
        self.event_count += 1
        log.log(logging.WARNING if level in ("warning", "error") else logging.INFO, "%s", text)

    # --- the pump ---------------------------------------------------------------------

    def _on_met(self, link: Link) -> None:
        self._gossip.met(link.remote, self.clock.monotonic())

    async def _on_not_allowed(self, link: Link, told: NotAllowed, _body: memoryview) -> None:
        if told == BUSY:
            log.debug("node %s is too busy to tell us what it knows", short_text(link.remote))
            return
        now = self.clock.monotonic()
        if self._refused_at is None or now - self._refused_at >= RETELL_S:
            self._refused_at = now
            self.note(
                "warning",
                f"node {short_text(link.remote)} talks to the nodes on its allow list only; "
                f"to be one of them, have {node_text(self.id)} added there",
            )

    async def _on_gossip(self, link: Link, message: GossipMessage, _body: memoryview) -> None:
        if self._allowed is not None:
            permitted = without_strangers(message, self._allowed)
            if permitted is None:
                return
            message = permitted
        self._gossip.receive(link.remote, message, self.clock.monotonic())
        if isinstance(message, Push) and message.last:
            self.joined.set()
        self._wake.set()

    @property
    def gossips(self) -> bool:
        """Whether it takes part in the network: false before the start, and after a defect."""
        return self._pumping is not None and not self._pumping.done()

    async def _pump_on(self) -> None:
        try:
            await self._pump()
        except Exception:
            self.note("error", "this node gossips no more, for a defect in it: restart it")
            raise

    async def _pump(self) -> None:
        while True:
            now = self.clock.monotonic()
            self._gossip.tick(now)
            self._flush()
            for level, text in self._gossip.drain_events():
                self.note(level, text)
            for node in self._gossip.drain_lost():
                self.links.found_dead(node)
            wait = min(MAX_TICK_S, max(0.0, self._gossip.next_deadline() - self.clock.monotonic()))
            self._wake.clear()
            try:
                # Not wait_for: on Python 3.11 it can swallow a cancellation.
                async with asyncio.timeout(wait + 0.001):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _flush(self) -> list[asyncio.Task[None]]:
        """Start delivering what the state machine wants sent."""
        started = (self._deliveries.send(node, message) for node, message in self._gossip.drain())
        return [task for task in started if task is not None]

    async def _deliver_all(self, seconds: float) -> None:
        tasks = self._flush()
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


def _with_port(place: str, port: str) -> str:
    """Add our port to a bare host; brackets keep an IPv6 address apart from it."""
    if place.count(":") > 1 and not place.startswith("["):
        return f"[{place}]:{port}"
    return place if place.rpartition("]")[2].count(":") else f"{place}:{port}"
