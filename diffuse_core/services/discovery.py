"""Discovery: keeps a node in touch with the network, wherever it knows nodes from."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Protocol

from diffuse_core.domain.channel import HandshakeFailed
from diffuse_core.domain.contacts import Contact, Contacts, Source
from diffuse_core.domain.identity import short_text
from diffuse_core.domain.records import record_node
from diffuse_core.errors import Unreachable
from diffuse_core.services.places import dialable

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.members import Member
    from diffuse_core.domain.view import EventLevel
    from diffuse_core.ports import Clock
    from diffuse_core.services.links import Link, Links
    from diffuse_core.services.tasks import TaskOwner

ALONE_LOOK_S = 0.2
LOOK_S = 1.0
RETELL_S = 60.0
RETELL_IN_COMPANY_S = 3600.0


class Newcomer(Protocol):
    """What discovery needs of the node that it works for."""

    id: NodeId
    clock: Clock
    links: Links
    tasks: TaskOwner

    def members(self) -> tuple[Member, ...]:
        """All nodes known."""
        ...

    def listening(self) -> tuple[str, ...]:
        """The addresses at which this node may be met."""
        ...

    def introduce(self, node: NodeId) -> None:
        """Tell `node` of ourselves and ask for what it knows."""
        ...

    def note(self, level: EventLevel, text: str) -> None:
        """Tell the owner."""
        ...


class Discovery:
    """Dials contacts as long as the network is not found, and now and then later."""

    def __init__(self, node: Newcomer, rng: random.Random) -> None:
        self._node = node
        self._rng = rng
        self._contacts = Contacts(node.id, rng)
        self._changed = asyncio.Event()
        self._told: dict[str, float] = {}
        self._reached_at: dict[str, NodeId] = {}
        self._twin_told = False

    def start(self, bootstrap: Sequence[str]) -> None:
        """Begin with the bootstrap addresses; others may be added at any time."""
        now = self._node.clock.monotonic()
        for address in bootstrap:
            self._contacts.add("bootstrap", (address,), None, now)
        self._node.tasks.spawn(self._run(), "discovery")

    def add(self, source: Source, addresses: tuple[str, ...], node: NodeId | None) -> None:
        """A place where a node may be found; `node` is the id that must answer, when known."""
        self._contacts.add(source, addresses, node, self._node.clock.monotonic())
        self._changed.set()

    def withdraw(self, source: Source, addresses: tuple[str, ...], node: NodeId | None) -> None:
        """A place that is no more."""
        self._contacts.withdraw(source, addresses, node)

    def reached(self) -> dict[NodeId, str]:
        """The bootstrap addresses at which nodes answered; they may not advertise those."""
        return {node: address for address, node in self._reached_at.items()}

    def given_up(self, node: NodeId) -> bool:
        """Whether a remembered node failed too often to be remembered any longer."""
        return self._contacts.given_up(node)

    async def _run(self) -> None:
        while True:
            live = self._live()
            now = self._node.clock.monotonic()
            for contact in self._contacts.due(now, live, self._node.links.speaking()):
                task = self._node.tasks.spawn(self._try(contact), f"join {contact.addresses[0]}")
                if task is None:
                    self._contacts.failed(contact, alone=not live)
            self._changed.clear()
            try:
                async with asyncio.timeout(LOOK_S if live else ALONE_LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _live(self) -> set[NodeId]:
        live = {record_node(member.record) for member in self._node.members() if member.live}
        return live - {self._node.id}

    async def _try(self, contact: Contact) -> None:
        problem = Unreachable("it has no address")
        for address in contact.addresses:
            # Remembered ones were told by others.
            if contact.source == "remembered" and not dialable(address):
                continue
            try:
                link = await self._node.links.dial(address, contact.expected)
            except Unreachable as error:
                if _is_ourselves(error):
                    self._contacts.remove(contact)
                    self._tell_of_twin(address)
                    return
                problem = error
            else:
                await self._reached(contact, address, link)
                return
        alone = not self._live()
        self._contacts.failed(contact, alone=alone)
        self._tell(contact, problem, alone=alone)

    def _tell_of_twin(self, address: str) -> None:
        """Where we answered ourselves: it is our own port, or another process is us as well."""
        known = map(_port, self._node.listening())
        if self._twin_told or _port(address) in known:
            return
        self._twin_told = True
        self._node.note(
            "warning",
            f"the node at {address} has this node's identity: two processes run with copies of "
            "one state directory; give each its own --state-dir",
        )

    async def _reached(self, contact: Contact, address: str, link: Link) -> None:
        self._contacts.answered(contact, link.remote)
        self._told.pop(contact.addresses[0], None)
        if contact.source == "bootstrap":
            self._reached_at[address] = link.remote
        links = self._node.links.linked().get(link.remote, ())
        mine = [other for other in links if other.dialled and not other.useless]
        self._node.introduce(link.remote)
        if len(mine) > 1:
            # Two addresses of one node, dialled at once: one link is enough.
            await link.close()

    def _tell(self, contact: Contact, problem: Unreachable, *, alone: bool) -> None:
        if contact.source == "bootstrap":
            name, text = contact.addresses[0], f"bootstrap {contact.addresses[0]}: {problem}"
        elif not alone:
            return
        else:
            # One of them stands for all: a long list of what is gone helps nobody.
            name = contact.source
            known = "remembered" if contact.source == "remembered" else "found on the LAN"
            whom = short_text(contact.expected) if contact.expected else contact.addresses[0]
            text = f"node {whom}, {known}: {problem}"
        now = self._node.clock.monotonic()
        pause = RETELL_S if alone else RETELL_IN_COMPANY_S
        if now - self._told.get(name, -math.inf) >= pause:
            self._told[name] = now
            self._node.note("warning", f"{text}; trying on")


def _is_ourselves(error: Unreachable) -> bool:
    cause = error.__cause__
    return isinstance(cause, HandshakeFailed) and cause.reason == "own"


def _port(address: str) -> str:
    return address.removesuffix("/").rpartition(":")[2]
