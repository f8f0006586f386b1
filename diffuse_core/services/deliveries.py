"""Deliveries: brings gossip to nodes, over open links at once and through dials sparingly.

Anybody can make up nodes, and addresses that accept a connection and then stay silent. So a dial
never keeps a message to another node waiting: each node has a line of its own, and only so many
of these lines may be dialling at a time, some of them for nodes that we had a link with before.
Who could not be reached is left alone for a while, the longer the more often that happened. So is
an address where that happened, whoever else is said to be there (`Places`), and it is dialled for
one of them at a time.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from diffuse_core.domain.bounded import forget_oldest
from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.messages import Ping
from diffuse_core.errors import ChannelClosed, DiffuseError, Unreachable
from diffuse_core.services.places import place_of
from diffuse_core.services.tasks import Dropped, TaskOwner

if TYPE_CHECKING:
    import asyncio

    from diffuse_core.domain.exchange import Outgoing
    from diffuse_core.ports import Clock
    from diffuse_core.services.links import Link, Links

log = logging.getLogger(__name__)

MAX_DIALS = 64
DIALS_FOR_THE_MET = 16
"""Of MAX_DIALS, those kept for nodes that we had a link with."""
MAX_WAITING = 256
MAX_WAITING_FOR_A_DIAL = 32
"""Messages in one node's line; those that come later are dropped, as a network may do."""
MAX_REMEMBERED = 4096
REFUSED_S = 0.4
"""Less than a probe takes: each of them must be able to find out anew that nobody is there."""
REFUSED_LONGEST_S = 8.0
SILENT_S = 2.0
SILENT_LONGEST_S = 8.0


class Sender(Protocol):
    """What deliveries need of the node that they work for."""

    clock: Clock
    links: Links

    def addresses(self, node: NodeId) -> tuple[str, ...]:
        """Where `node` says it can be dialled."""
        ...

    def suspect(self, node: NodeId) -> None:
        """`node` cannot be reached, and that is not for its silence."""
        ...


@dataclass(eq=False)
class _Line:
    waiting: deque[Outgoing] = field(default_factory=deque)
    addresses: tuple[str, ...] = ()
    task: asyncio.Task[None] | None = None


@dataclass
class _Failure:
    """A dial that led nowhere: when, whether for silence, and how many before it did so too."""

    at: float
    silent: bool
    before: int

    def rests_until(self, message: Outgoing) -> float:
        if self.silent:
            return self.at + min(SILENT_S * 2.0**self.before, SILENT_LONGEST_S)
        if isinstance(message, Ping):
            return self.at + REFUSED_S
        return self.at + min(REFUSED_S * 2.0**self.before, REFUSED_LONGEST_S)


class Deliveries:
    """One node's outgoing gossip."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._links = sender.links
        self._tasks = TaskOwner("deliver")
        self._lines: dict[NodeId, _Line] = {}
        self._dialling: dict[NodeId, tuple[str, ...]] = {}
        self._held: set[str] = set()
        """Places that are being dialled for one of the nodes that are said to be there."""
        self._failures: dict[NodeId, _Failure] = {}
        self._met: dict[NodeId, None] = {}
        self._dropped = Dropped("too many nodes to dial at a time: dropped gossip")
        self._links.on_met(self._on_met)

    def send(self, node: NodeId, message: Outgoing) -> asyncio.Task[None] | None:
        """Begin to deliver; the task that does so, or None where the message was dropped."""
        line = self._lines.get(node)
        if line is not None:
            limit = MAX_WAITING_FOR_A_DIAL if node in self._dialling else MAX_WAITING
            if len(line.waiting) >= limit:
                return None
            line.waiting.append(message)
            return line.task
        dials = self._links.find(node) is None
        if dials and not self._may_dial(node, message):
            return None
        known = self._sender.addresses(node)
        addresses = self._free(node, known) if dials else known
        if known and not addresses:
            return None
        line = _Line(deque((message,)), addresses)
        line.task = self._tasks.spawn(self._serve(node, line), short_text(node))
        if line.task is not None:
            self._lines[node] = line
            if dials:
                self._begin_dial(node, addresses)
        return line.task

    def _free(self, node: NodeId, known: tuple[str, ...]) -> tuple[str, ...]:
        """Where `node` may be dialled now: no place that rests, none twice at a time."""
        places = self._links.places
        return tuple(
            address
            for address in known
            if places.is_home(address, node)
            or not (place_of(address) in self._held or places.rests(address, node))
        )

    def _begin_dial(self, node: NodeId, addresses: tuple[str, ...]) -> None:
        home = self._links.places.is_home
        held = tuple({place_of(one) for one in addresses if not home(one, node)} - self._held)
        self._dialling[node] = held
        self._held.update(held)

    def _end_dial(self, node: NodeId) -> None:
        self._held.difference_update(self._dialling.pop(node, ()))

    async def close(self) -> None:
        """End what is under way."""
        await self._tasks.close()

    def _may_dial(self, node: NodeId, message: Outgoing) -> bool:
        now = self._sender.clock.monotonic()
        failure = self._failures.get(node)
        if failure is not None and now < failure.rests_until(message):
            return False
        if len(self._dialling) < MAX_DIALS - (0 if node in self._met else DIALS_FOR_THE_MET):
            return True
        self._dropped.count(log, now, f"to {short_text(node)}")
        return False

    async def _serve(self, node: NodeId, line: _Line) -> None:
        broke = False
        link: Link | None = None
        try:
            link = await self._links.to(node, line.addresses)
            self._end_dial(node)
            while line.waiting:
                await link.send(line.waiting[0])
                line.waiting.popleft()
        except ChannelClosed:
            broke = True
            # One of two links was closed as needless: what it did not take goes over the other.
            if self._links.find(node) in (None, link):
                line.waiting.popleft()
        except Unreachable as error:
            self._failed(node, silent=isinstance(error.__cause__, TimeoutError))
            log.debug("no way to %s: %s", short_text(node), error)
        except DiffuseError as error:
            log.warning("gossip with %s failed: %s", short_text(node), error)
        finally:
            self._end_dial(node)
            self._lines.pop(node, None)
        while broke and line.waiting:
            self.send(node, line.waiting.popleft())

    def _failed(self, node: NodeId, *, silent: bool) -> None:
        last = self._failures.pop(node, None)
        before = last.before + 1 if last is not None and last.silent == silent else 0
        now = self._sender.clock.monotonic()
        self._failures[node] = _Failure(now, silent, min(before, 16))
        forget_oldest(self._failures, MAX_REMEMBERED)
        # Silence is no evidence yet: a paused node is silent too, and probes will find out.
        if not silent:
            self._sender.suspect(node)

    def _on_met(self, link: Link) -> None:
        self._failures.pop(link.remote, None)
        self._met.pop(link.remote, None)
        self._met[link.remote] = None
        forget_oldest(self._met, MAX_REMEMBERED)
