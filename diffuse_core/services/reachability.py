"""Reachability: finds out whether others can dial this node, and sees to it that they reach it.

A node asks sentinels to dial it back. Where they reach it, it advertises the address they see it
at; where they do not, it lets them relay, and advertises that.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from diffuse_core.domain.identity import short_text
from diffuse_core.domain.messages import AskDialBack, DialledBack
from diffuse_core.domain.reachability import DialBacks, Verdict, told_addresses
from diffuse_core.domain.relayed_address import parse_relayed
from diffuse_core.errors import Unreachable
from diffuse_core.services.reservations import direct_link, sentinels
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.reachability import RelayMode
    from diffuse_core.services.links import Link
    from diffuse_core.services.node import Node

log = logging.getLogger(__name__)

LOOK_S = 1.0
ASK_S = 15.0
"""For the dial to the sentinel, its dial to us, and the answer."""
MET_S = 2.0
"""The sentinel's answer may be here before its channel is."""
NO_RELAY_S = 10.0
"""How long to look for a sentinel that relays before the owner is told that there is none."""


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

    `relays` is None for a node that is never relayed, such as a sentinel.
    """

    def __init__(
        self, node: Node, mode: RelayMode, relays: Relays | None, rng: random.Random
    ) -> None:
        self._node = node
        self._mode = mode
        self._relays = relays
        self._rng = rng
        self._own: tuple[str, ...] = ()
        self._port = 0
        self._dial_backs = DialBacks(0, rng)
        self._tasks = TaskOwner("reachability")
        self._answers: dict[NodeId, tuple[int, asyncio.Future[DialledBack]]] = {}
        self._came_in: dict[NodeId, asyncio.Event] = {}
        self._changed = asyncio.Event()
        self._looking_since: float | None = None
        self._told: str | None = None

    def start(self, port: int, own: Sequence[str]) -> None:
        """Begin; `own` are our own addresses, which all have our listening `port`."""
        self._own, self._port = tuple(own), port
        self._dial_backs = DialBacks(port, self._rng)
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
        wanted = relays is not None and (self._mode == "always" or bool(verdict.unreached))
        if relays is not None and wanted:
            relays.start()
        relayed = relays.addresses() if relays is not None and wanted else ()
        told = told_addresses(self._mode, verdict, self._own, relayed)
        for address in set(told[:1]) - {
            *self._own,
            *relayed,
            *self._node.addresses(self._node.id),
        }:
            self._node.note("info", f"others reach this node at {address}")
        self._node.advertise(told)
        if relays is not None and not wanted:
            await relays.stop()
        self._tell(relayed, wanted=wanted)

    # --- asking -----------------------------------------------------------------------

    async def _ask(self, sentinel: NodeId, places: tuple[str, ...]) -> None:
        nonce = self._rng.getrandbits(32)
        answer: asyncio.Future[DialledBack] = asyncio.get_running_loop().create_future()
        self._answers[sentinel] = nonce, answer
        came_in = self._came_in[sentinel] = asyncio.Event()
        told: DialledBack | None = None
        try:
            async with asyncio.timeout(ASK_S):
                # Over a link that it dialled itself it does not see where we dial from.
                link = await direct_link(self._node.links, sentinel, places)
                await link.send(AskDialBack(nonce, self._port))
                told = await answer
            if told.reached:
                async with asyncio.timeout(MET_S):
                    await came_in.wait()
        except (TimeoutError, Unreachable) as error:
            log.debug("asked %s in vain to dial us back: %s", short_text(sentinel), error)
        finally:
            del self._answers[sentinel], self._came_in[sentinel]
            now = self._node.clock.monotonic()
            if told is None:
                self._dial_backs.silent(sentinel, now)
            else:
                met = came_in.is_set()
                self._dial_backs.answered(sentinel, told.reached, told.address, met=met, now=now)
            self._changed.set()

    async def _on_dialled_back(self, link: Link, message: DialledBack, _body: memoryview) -> None:
        nonce, answer = self._answers.get(link.remote, (None, None))
        if answer is not None and message.nonce == nonce and not answer.done():
            answer.set_result(message)

    def _on_met(self, link: Link) -> None:
        came_in = self._came_in.get(link.remote)
        if came_in is not None and not link.dialled and link.relayed_through is None:
            came_in.set()

    def _on_ended(self, link: Link) -> None:
        asked = self._dial_backs.asked()
        if link.remote in asked and asked.isdisjoint(self._node.links.linked()):
            self._dial_backs.cut_off(self._node.clock.monotonic())

    # --- what the owner is told -------------------------------------------------------

    def _tell(self, relayed: tuple[str, ...], *, wanted: bool) -> None:
        if not wanted:
            self._looking_since = None
            if self._told is not None:
                self._told = None
                self._node.note("good", f"others can dial this machine again{self._where()}")
            return
        now = self._node.clock.monotonic()
        if self._looking_since is None:
            self._looking_since = now
        if relayed:
            through = " and ".join(map(_sentinel, relayed))
            self._tell_once("relayed", f"{self._why()}reachable through sentinel {through}")
        elif now - self._looking_since >= NO_RELAY_S:
            self._tell_once("none", f"{self._why()}no sentinel relays for it now; trying on")

    def _tell_once(self, what: str, text: str) -> None:
        if self._told == what or (self._told == "relayed" and what == "none"):
            return
        self._told = what
        advice = ""
        if self._mode == "auto":
            advice = f". To be dialled directly, forward port {self._port} or give --public-addr"
        self._node.note("warning" if what == "none" else "info", f"{text}{advice}")

    def _why(self) -> str:
        if self._mode == "always":
            return ""
        tried = ", ".join(
            f"sentinel {short_text(node)} tried {address}"
            for node, address in self.verdict.unreached
        )
        return f"nobody outside can dial this machine ({tried}); "

    def _where(self) -> str:
        return f" at {self.verdict.reached[0]}" if self.verdict.reached else ""


def _sentinel(address: str) -> str:
    relayed = parse_relayed(address)
    return "" if relayed is None else short_text(relayed.sentinel)
