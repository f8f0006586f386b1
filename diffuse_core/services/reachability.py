"""Reachability: finds out whether others can dial this node, and sees to it that they reach it.

A node asks sentinels to dial it back. Where they reach it, it advertises the address they see it
at; where they do not, it lets them relay, and advertises that. Addresses that the user gave are
advertised in any case, and the owner is told when sentinels cannot dial their port.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from diffuse_core.domain.identity import short_text
from diffuse_core.domain.reachability import DialBacks, Verdict, told_addresses
from diffuse_core.domain.relay_messages import AskDialBack, DialledBack
from diffuse_core.domain.relayed_address import parse_relayed
from diffuse_core.errors import Unreachable
from diffuse_core.services.reservations import direct_link, sentinels
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.reachability import RelayMode
    from diffuse_core.domain.view import EventLevel
    from diffuse_core.services.links import Link
    from diffuse_core.services.node import Node

log = logging.getLogger(__name__)

LOOK_S = 1.0
ASK_S = 15.0
"""For the dial to the sentinel, its dial to us, and the answer."""
MET_S = 2.0
"""The sentinel's answer may be here before its channel is."""
NO_RELAY_S = 4.0
"""How long to look for a sentinel that relays before the owner is told that there is none."""
QUIET_S = 60.0
"""The owner is not told more often than this that there is none."""
NO_RELAY = (
    "no sentinel relays for it now; trying on; start one with `diffuse sentinel`, or give "
    "--bootstrap of one"
)


class Relays(Protocol):
    """What reachability needs of the reservations at sentinels."""

    def start(self) -> None:
        """Reserve from now on; idempotent."""
        ...

    async def stop(self) -> None:
        """Give back what is reserved; idempotent. It may be started again."""
        ...

    def addresses(self) -> tuple[str, ...]:
        """The relayed addresses that work now, the best first."""
        ...


class Reachability:
    """Works for one node. `start` it once the node has started, `close` it before the node.

    `relays` is None for a node that is never relayed, such as a sentinel: whether others can dial
    it is found out all the same, and told to its owner.
    """

    def __init__(
        self, node: Node, mode: RelayMode, relays: Relays | None, rng: random.Random
    ) -> None:
        self._node = node
        self._mode = mode
        self._relays = relays
        self._rng = rng
        self._own: tuple[str, ...] = ()
        self._named = False
        self._port = 0
        self._dial_backs = DialBacks(0, (), rng)
        self._tasks = TaskOwner("reachability")
        self._answers: dict[NodeId, tuple[int, asyncio.Future[DialledBack]]] = {}
        self._came_in: dict[NodeId, asyncio.Future[str]] = {}
        self._changed = asyncio.Event()
        self._hidden_since: float | None = None
        self._told: str | None = None
        self._warned_at: float | None = None

    def start(self, port: int, own: Sequence[str], *, named: bool = False) -> None:
        """Begin to find out.

        Args:
            port: where we listen.
            own: our own addresses, which all have that port.
            named: the user gave them; they may have other ports, of which the first is asked for.
        """
        self._own, self._named = tuple(own), named and bool(own)
        self._port = _port(own[0], port) if self._named else port
        forwarded = self._port != port
        self._dial_backs = DialBacks(self._port, own, self._rng, forwarded=forwarded)
        links = self._node.links
        links.handle(DialledBack, self._on_dialled_back)
        links.on_met(self._on_met)
        links.on_ended(self._on_ended)
        self._tasks.spawn(self._run(), "watch")

    async def close(self) -> None:
        """Ask no more, and give back what is reserved."""
        self._node.links.off_ended(self._on_ended)
        self._node.links.unhandle(DialledBack)
        await self._tasks.close()
        if self._relays is not None:
            await self._relays.stop()

    def changed(self) -> None:
        """The reservations did: look at once what that means."""
        self._changed.set()

    @property
    def verdict(self) -> Verdict:
        """What the sentinels found."""
        return self._dial_backs.verdict

    # --- the watch --------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            if self._mode != "always":
                self._ask_those_due()
            await self._apply()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _ask_those_due(self) -> None:
        known = sentinels(self._node, self._node.id, self._node.discovery.reached())
        places = {one.node: one.addresses for one in known}
        trusted = [one.node for one in known if one.bootstrap]
        others = [one.node for one in known if not one.bootstrap]
        now = self._node.clock.monotonic()
        for sentinel in self._dial_backs.due(trusted, others, now):
            work = self._ask(sentinel, places[sentinel])
            if self._tasks.spawn(work, short_text(sentinel)) is None:
                self._dial_backs.silent(sentinel, now)

    async def _apply(self) -> None:
        """Let what is known now become what others are told."""
        verdict, relays = self.verdict, self._relays
        hidden = self._mode == "always" or bool(verdict.unreached)
        if relays is not None and hidden:
            relays.start()
        relayed = relays.addresses() if relays is not None and hidden else ()
        told = told_addresses(self._mode, verdict, self._own, relayed, named=self._named)
        known = {*self._own, *relayed, *self._node.addresses(self._node.id)}
        if told and told[0] not in known:
            self._node.note("info", f"others reach this node at {told[0]}")
        self._node.advertise(told)
        self._tell(relayed, hidden=hidden)
        if relays is not None and not hidden:
            await relays.stop()

    # --- asking -----------------------------------------------------------------------

    async def _ask(self, sentinel: NodeId, places: tuple[str, ...]) -> None:
        nonce = self._rng.getrandbits(32)
        answer: asyncio.Future[DialledBack] = asyncio.get_running_loop().create_future()
        self._answers[sentinel] = nonce, answer
        came_in: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._came_in[sentinel] = came_in
        told: DialledBack | None = None
        try:
            async with asyncio.timeout(ASK_S):
                # Over a link that it dialled itself it does not see where we dial from.
                link = await direct_link(self._node.links, sentinel, places)
                await link.send(AskDialBack(nonce, self._port))
                told = await answer
            if told.reached:
                async with asyncio.timeout(MET_S):
                    await came_in
        except (TimeoutError, Unreachable) as error:
            log.debug("asked %s in vain to dial us back: %s", short_text(sentinel), error)
        finally:
            del self._answers[sentinel], self._came_in[sentinel]
            now = self._node.clock.monotonic()
            if told is None:
                self._dial_backs.silent(sentinel, now)
            else:
                met = came_in.done() and not came_in.cancelled()
                self._dial_backs.answered(
                    sentinel,
                    told.reached,
                    told.address,
                    met=met,
                    now=now,
                    came_from=came_in.result() if met else "",
                )
            self._changed.set()

    async def _on_dialled_back(self, link: Link, message: DialledBack, _body: memoryview) -> None:
        nonce, answer = self._answers.get(link.remote, (None, None))
        if answer is not None and message.nonce == nonce and not answer.done():
            answer.set_result(message)

    def _on_met(self, link: Link) -> None:
        came_in = self._came_in.get(link.remote)
        if came_in is None or came_in.done() or link.dialled or link.relayed_through is not None:
            return
        came_in.set_result(link.remote_address)

    def _on_ended(self, link: Link) -> None:
        asked = self._dial_backs.asked()
        if link.remote in asked and asked.isdisjoint(self._node.links.linked()):
            self._dial_backs.cut_off(self._node.clock.monotonic())

    # --- what the owner is told -------------------------------------------------------

    def _tell(self, relayed: tuple[str, ...], *, hidden: bool) -> None:
        now = self._node.clock.monotonic()
        if not hidden:
            self._hidden_since = None
            if self._told is not None:
                self._told = None
                where = "".join(f" at {address}" for address in self.verdict.reached[:1])
                self._node.note("good", f"others can dial this machine again{where}")
        elif relayed:
            self._hidden_since = None
            self._tell_relayed(relayed)
        elif self._relays is None:
            self._tell_first("out of reach", "warning", self._why_not_relayed())
        else:
            if self._hidden_since is None:
                self._hidden_since = now
            self._tell_unrelayed(now)

    def _tell_relayed(self, relayed: tuple[str, ...]) -> None:
        through = " and ".join(map(_sentinel, relayed))
        if self._told == "no relay":
            self._told = "relayed"
            self._node.note("good", f"reachable through sentinel {through} again")
            return
        first = f"reachable through sentinel {through}"
        if self._named:
            first = (
                f"others are told {', '.join(self._own)} first, and reach it through sentinel "
                f"{through} meanwhile"
            )
        self._tell_first("relayed", "warning" if self._named else "info", first)

    def _tell_unrelayed(self, now: float) -> None:
        if self._hidden_since is None or now - self._hidden_since < NO_RELAY_S:
            return
        if self._told == "no relay":
            return
        if self._warned_at is not None and now - self._warned_at < QUIET_S:
            return
        self._warned_at = now
        self._tell_first("no relay", "warning", NO_RELAY)

    def _why_not_relayed(self) -> str:
        if self._named:
            return f"others are told {', '.join(self._own)} all the same"
        if self._mode == "never":
            return "it is not relayed because of --relay never"
        return "as a sentinel it is of no use to those outside"

    def _tell_first(self, what: str, level: EventLevel, text: str) -> None:
        """Tell something once; before the first word of it how we know that we are hidden."""
        before, self._told = self._told, what
        if before == what:
            return
        tried = [(short_text(node), address) for node, address in self.verdict.unreached]
        if before is None and self._named:
            whom = "; sentinel ".join(
                f"{node} could not dial {address}" for node, address in tried
            )
            check = f"check that port {self._port} is forwarded to this machine"
            text = f"sentinel {whom}; {check}; {text}"
        elif before is None and self._mode != "always":
            whom = ", ".join(f"sentinel {node} tried {address}" for node, address in tried)
            text = (
                f"nobody outside can dial this machine ({whom}); {text}. "
                f"To be dialled, forward port {self._port} to it or give --public-addr"
            )
        self._node.note(level, text)


def _port(address: str, other: int) -> int:
    """The port of HOST:PORT, and `other` where it is none."""
    port = address.rpartition(":")[2]
    return int(port) if port.isascii() and port.isdigit() else other


def _sentinel(address: str) -> str:
    relayed = parse_relayed(address)
    return "" if relayed is None else short_text(relayed.sentinel)
