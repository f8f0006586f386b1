"""Reservations: lets others reach this node through Sentinels, and takes the circuits they offer.

A Sentinel is trusted with nothing: what it says moves this node to another one at most, what it
offers is taken only where this node has a reservation, and whoever is at the other end of a
circuit proves who it is inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Protocol

from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.offers import GIVEN_UP_S, Offers
from diffuse_core.domain.records import record_node
from diffuse_core.domain.relay_messages import (
    CircuitOffered,
    DeclineCircuit,
    RelayRefused,
    Release,
    Reserve,
    Reserved,
)
from diffuse_core.domain.relayed_address import RelayedAddress, is_relayed
from diffuse_core.domain.reservations import ANSWER_S, Candidate, ReservationPlan
from diffuse_core.errors import ChannelClosed, Unreachable
from diffuse_core.services.circuits import join
from diffuse_core.services.places import dialable
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from diffuse_core.ports import Clock, Transport
    from diffuse_core.services.directory import Directory
    from diffuse_core.services.links import Link, Links

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often one looks for Sentinels that came or went."""
JOIN_S = 5.0
"""From an offer to a proven node at the other end."""
MAX_JOINS = 32
"""Circuits of one Sentinel that are under way; those of others have places of their own."""
PATIENCE_S = 2.0
"""So long a circuit under way keeps its place for sure; an honest one needs less."""
MAX_RELAYED = 128
"""Links that others opened through Sentinels."""
RELEASE_S = 1.0


def sentinels(node: Directory, own: NodeId, named: Mapping[NodeId, str]) -> list[Candidate]:
    """The live Sentinels that `node` knows where to dial.

    Args:
        node: knows the members and their addresses.
        own: its id.
        named: those that the user named, and where they answered.
    """
    found = []
    for member in node.members():
        sentinel = record_node(member.record)
        if member.record.role != "sentinel" or not member.live or sentinel == own:
            continue
        told = (*_if_known(named.get(sentinel)), *filter(dialable, node.addresses(sentinel)))
        places = tuple(place for place in dict.fromkeys(told) if not is_relayed(place))
        if places:
            found.append(Candidate(sentinel, places, sentinel in named, member.rtt_s))
    return found


def _if_known(place: str | None) -> tuple[str, ...]:
    return () if place is None else (place,)


async def direct_link(links: Links, sentinel: NodeId, places: Iterable[str]) -> Link:
    """A direct link to a Sentinel that we dialled: it sees where we are, we where others dial it.

    Raises:
        Unreachable: it does not answer at any of `places`.
    """
    for link in links.linked().get(sentinel, ()):
        usable = not (link.closed or link.useless)
        if link.dialled and usable and link.relayed_through is None:
            return link
    problem = Unreachable("no address of it is known")
    for address in places:
        try:
            return await links.dial(address, sentinel)
        except Unreachable as error:
            problem = error
    raise problem


class Party(Protocol):
    """What reservations need of the node that they work for."""

    clock: Clock
    links: Links


class Reservations:
    """Works for one node, from `start` to `stop` and maybe again.

    `stop` it before the node, which then says farewell over the links that are left, and `close`
    it after.

    `transport` makes channels without circuits. `candidates` gives the Sentinels to choose from,
    and is asked often. `on_change` is called whenever `addresses` are others than before.
    """

    def __init__(
        self,
        party: Party,
        transport: Transport,
        candidates: Callable[[], Iterable[Candidate]],
        rng: random.Random,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.on_change = on_change
        self._links = party.links
        self._clock = party.clock
        self._transport = transport
        self._candidates = candidates
        self._plan = ReservationPlan(rng)
        self._offers = Offers()
        self._hangs_on: dict[NodeId, Link] = {}
        self._joins: dict[asyncio.Task[None], tuple[NodeId, float]] = {}
        self._told: tuple[str, ...] = ()
        self._wake = asyncio.Event()
        self._tasks: TaskOwner | None = None
        self._carried = TaskOwner("relayed")

    # --- life -------------------------------------------------------------------------

    def start(self) -> None:
        """Reserve from now on; idempotent."""
        if self._tasks is not None:
            return
        self._tasks = TaskOwner("reservations")
        self._links.handle(Reserved, self._on_reserved)
        self._links.handle(RelayRefused, self._on_refused)
        self._links.handle(CircuitOffered, self._on_offered)
        self._links.on_ended(self._on_ended)
        self._tasks.spawn(self._run(), "watch")

    async def stop(self) -> None:
        """Give back what is reserved; idempotent. Links that came through it go on."""
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return
        self._links.unhandle(Reserved, RelayRefused, CircuitOffered)
        self._links.off_ended(self._on_ended)
        links = tuple(self._hangs_on.values())
        self._hangs_on.clear()
        self._joins.clear()
        self._plan.forget()
        self._tell()
        await tasks.close()
        await asyncio.gather(*map(_release, links))

    async def close(self) -> None:
        """Stop, and end the links that came through Sentinels."""
        await self.stop()
        await self._carried.close()

    def held(self) -> tuple[RelayedAddress, ...]:
        """Through which Sentinels others reach this node now, and where it reaches them itself."""
        return tuple(
            RelayedAddress(sentinel, self._hangs_on[sentinel].remote_address)
            for sentinel in self._plan.held(self._clock.monotonic())
            if sentinel in self._hangs_on
        )

    def addresses(self) -> tuple[str, ...]:
        """What `held` gives, as records carry it."""
        return tuple(map(str, self.held()))

    # --- the watch --------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now = self._clock.monotonic()
            known = {one.node: one for one in self._candidates()}
            for sentinel in self._plan.due(known.values(), now):
                self._spawn(self._ask(sentinel, known.get(sentinel)), short_text(sentinel))
            self._let_go()
            self._tell()
            wait = min(LOOK_S, max(0.0, self._plan.next_deadline(now) - now))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait + 0.001):
                    await self._wake.wait()

    def _spawn(
        self, work: Coroutine[object, object, None], name: str
    ) -> asyncio.Task[None] | None:
        if self._tasks is None:
            work.close()
            return None
        return self._tasks.spawn(work, name)

    def _let_go(self) -> None:
        """Of what the plan holds no more the Sentinel is to know."""
        for sentinel in self._hangs_on.keys() - self._plan.concerned():
            self._spawn(_release(self._hangs_on.pop(sentinel)), "release")

    def _tell(self) -> None:
        addresses = self.addresses()
        if addresses != self._told:
            self._told = addresses
            self.on_change()

    def _changed(self) -> None:
        self._tell()
        self._wake.set()

    # --- reserving --------------------------------------------------------------------

    async def _ask(self, sentinel: NodeId, candidate: Candidate | None) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                places = () if candidate is None else candidate.addresses
                link = self._hangs_on.get(sentinel)
                link = link or await direct_link(self._links, sentinel, places)
                self._hangs_on[sentinel] = link
                await link.send(Reserve())
        except TimeoutError:
            # The plan gave it up, too.
            log.debug("sentinel %s did not let us reserve in time", short_text(sentinel))
        except Unreachable as error:
            log.debug("cannot reserve at sentinel %s: %s", short_text(sentinel), error)
            self._refused(sentinel)

    async def _on_reserved(self, link: Link, message: Reserved, _body: memoryview) -> None:
        if self._hangs_on.get(link.remote) is not link:
            return
        now = self._clock.monotonic()
        if self._plan.granted(link.remote, message.seconds, now):
            log.debug("reserved at sentinel %s", short_text(link.remote))
            self._changed()

    async def _on_refused(self, link: Link, message: RelayRefused, _body: memoryview) -> None:
        if self._hangs_on.get(link.remote) is link:
            told = "sentinel %s does not relay for this node: %s %s"
            log.debug(told, short_text(link.remote), message.problem, message.detail)
            self._refused(link.remote)

    def _on_ended(self, link: Link) -> None:
        if self._hangs_on.get(link.remote) is link:
            del self._hangs_on[link.remote]
            self._plan.ended(link.remote, self._clock.monotonic())
            self._changed()

    def _refused(self, sentinel: NodeId) -> None:
        self._hangs_on.pop(sentinel, None)
        self._plan.refused(sentinel, self._clock.monotonic())
        self._changed()

    # --- circuits ---------------------------------------------------------------------

    async def _on_offered(self, link: Link, offer: CircuitOffered, _body: memoryview) -> None:
        now = self._clock.monotonic()
        if self._hangs_on.get(link.remote) is not link or not self._plan.holds(link.remote, now):
            return
        task: asyncio.Task[None] | None = None
        if self._offers.may_join(link.remote, now) and self._has_room(link, now):
            task = self._spawn(self._join(link, offer), f"join {short_text(offer.source)}")
        if task is None:
            if self._offers.may_decline(link.remote, now):
                await link.send(DeclineCircuit(offer.circuit))
            return
        self._joins[task] = link.remote, now
        task.add_done_callback(lambda done: self._joins.pop(done, None))

    def _has_room(self, link: Link, now: float) -> bool:
        relayed = sum(
            one.relayed_through is not None and not one.dialled
            for links in self._links.linked().values()
            for one in links
        )
        if relayed + len(self._joins) >= MAX_RELAYED:
            return False
        mine = [
            (task, since)
            for task, (through, since) in self._joins.items()
            if through == link.remote
        ]
        if len(mine) < MAX_JOINS:
            return True
        # Who asks for circuits and leaves them unused takes places from nobody for long.
        oldest, since = mine[0]
        if now - since < PATIENCE_S:
            return False
        del self._joins[oldest]
        oldest.cancel()
        self._came_to(link, proven=False)
        return self._plan.holds(link.remote, now)

    async def _join(self, link: Link, offer: CircuitOffered) -> None:
        way = RelayedAddress(link.remote, link.remote_address)
        try:
            channel = await join(self._transport, way, offer.circuit, NodeId(offer.source), JOIN_S)
        except Unreachable as error:
            log.debug("a circuit did not come about: %s", error)
            self._came_to(link, proven=False)
            with contextlib.suppress(ChannelClosed):
                await link.send(DeclineCircuit(offer.circuit))
            return
        self._came_to(link, proven=True)
        name = short_text(channel.remote)
        if self._carried.spawn(self._links.accept(channel), name) is None:
            await channel.close()

    def _came_to(self, link: Link, *, proven: bool) -> None:
        """A circuit came about or did not: that tells of its Sentinel, unless it is gone."""
        now = self._clock.monotonic()
        if self._hangs_on.get(link.remote) is not link or not self._plan.holds(link.remote, now):
            return
        if not self._offers.joined(link.remote, proven=proven):
            name = short_text(link.remote)
            log.info("sentinel %s offers circuits that lead nowhere: it is given up", name)
            # The watch lets it know.
            self._plan.refused(link.remote, now, GIVEN_UP_S)
            self._changed()


async def _release(link: Link) -> None:
    with contextlib.suppress(TimeoutError, ChannelClosed):
        async with asyncio.timeout(RELEASE_S):
            await link.send(Release())
