"""Links: open channels by node id, dialled once and shared by everything a node does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from diffuse_core.domain.bounded import forget_oldest
from diffuse_core.domain.codec import decode, encode
from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.owner_messages import NotAllowed
from diffuse_core.errors import ChannelClosed, Unreachable
from diffuse_core.services.link import Link, Traffic
from diffuse_core.services.loopback import loopback
from diffuse_core.services.places import Places, dialable
from diffuse_core.services.race import none_answered, race
from diffuse_core.services.tasks import TaskOwner
from diffuse_core.services.ways import Ways

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine

    from diffuse_core.ports import Channel, Transport

__all__ = ["Handler", "Link", "LinkEnded", "Links", "PromptHandler", "Traffic"]

log = logging.getLogger(__name__)

DIAL_TIMEOUT_S = 5.0
DIAL_ALL_S = 6.0
"""For all addresses of a node."""
SILENT_CLOSE_S = 0.1
"""For a farewell to leave, where nobody is there to answer it."""
TURN_S = 0.005
"""So long what came over one link is handled before others have a turn."""
MAX_LINKS = 640
"""That others opened, direct and relayed ones each. Above what the listening port lets in, which
chooses who gives way: whom it sent off may not have left yet when the next one comes."""
MAX_TURNED_AWAY = 1024
"""Nodes not on the allow list of which one remembers that this was told."""


M = TypeVar("M")
Handler = Callable[[Link, M, memoryview], Awaitable[None]]
PromptHandler = Callable[[Link, M, memoryview], bool]
LinkEnded = Callable[[Link], None]


class Links:
    """The pool. Dispatches what arrives to the handler of its message type.

    With `allowed`, channels with other nodes are closed before any message of theirs is read.
    """

    def __init__(
        self,
        transport: Transport,
        own: NodeId | None = None,
        allowed: Collection[NodeId] | None = None,
    ) -> None:
        self._transport = transport
        # A transport that dials Sentinels notes what it finds there in the same table.
        self.places: Places = getattr(transport, "places", None) or Places()
        self._own = own
        self._allowed = allowed
        self._tasks = TaskOwner("links")
        self._open: dict[NodeId, list[Link]] = {}
        self._surrendered: dict[Link, Channel] = {}
        self._dialling: dict[NodeId, asyncio.Future[Link]] = {}
        self._handlers: dict[type, Handler[Any]] = {}
        self._prompt: dict[type, PromptHandler[Any]] = {}
        self._ended: list[LinkEnded] = []
        self._met: list[Callable[[Link], None]] = []
        self._turned_away: dict[NodeId, None] = {}
        self.traffic = Traffic()
        self.ways = Ways()

    def handle(self, kind: type[M], handler: Handler[M]) -> None:
        """Send messages of `kind` to `handler`. It must not block: its link waits for it."""
        self._handlers[kind] = handler

    def handle_promptly(self, kind: type[M], handler: PromptHandler[M]) -> None:
        """Try messages of `kind` with `handler` first, the moment they come out of the socket.

        For what is on the way of every token: it saves the turns of the event loop until the
        link's reader gets to it. It must neither wait nor raise, and returns whether the message
        is done with; if not, it must have changed nothing, and the usual handler gets it. Not
        every message comes this way: not long ones, nor those that others wait before.
        """
        self._prompt[kind] = handler

    def unhandle(self, *kinds: type) -> None:
        """Ignore messages of `kinds` from now on."""
        for kind in kinds:
            self._handlers.pop(kind, None)
            self._prompt.pop(kind, None)

    def on_ended(self, callback: LinkEnded) -> None:
        """Call `callback` whenever a link ended."""
        self._ended.append(callback)

    def off_ended(self, callback: LinkEnded) -> None:
        """Call it no more; idempotent."""
        if callback in self._ended:
            self._ended.remove(callback)

    def on_met(self, callback: Callable[[Link], None]) -> None:
        """Call `callback` whenever a link opened, in either direction."""
        self._met.append(callback)

    async def accept(self, channel: Channel) -> None:
        """Serve an inbound channel until it ends."""
        if self._inbound(channel) >= MAX_LINKS:
            await channel.close()
            return
        if not self._is_allowed(channel.remote):
            await self._turn_away(channel)
            return
        await self._serve(Link(channel, self.traffic, dialled=False))

    def _inbound(self, like: Channel) -> int:
        direct = like.relayed_through is None
        links = (link for mine in self._open.values() for link in mine if not link.dialled)
        return sum((link.relayed_through is None) == direct for link in links)

    def _is_allowed(self, node: NodeId) -> bool:
        return self._allowed is None or node in self._allowed

    async def _turn_away(self, channel: Channel) -> None:
        # Once for each node: those of a LAN find us again and again.
        level = logging.DEBUG if channel.remote in self._turned_away else logging.INFO
        self._turned_away[channel.remote] = None
        forget_oldest(self._turned_away, MAX_TURNED_AWAY)
        text = "closed the channel of node %s: it is not on the allow list"
        log.log(level, text, channel.remote.hex())
        with contextlib.suppress(ChannelClosed):
            await channel.send(encode(NotAllowed("this node is not on the allow list there")))
        await channel.close()

    def linked(self) -> dict[NodeId, list[Link]]:
        """The open links by node, in the order they came."""
        return {node: list(links) for node, links in self._open.items()}

    def find(self, node: NodeId) -> Link | None:
        """An open link to `node` over which it may be heard, if there is one."""
        for link in reversed(self._open.get(node, ())):
            if not (link.closed or link.doubted or link.useless):
                return link
        return None

    def speaking(self) -> set[NodeId]:
        """The nodes with an open link over which they may be heard."""
        return {
            node
            for node, links in self._open.items()
            if any(not (link.closed or link.useless) for link in links)
        }

    def found_dead(self, node: NodeId) -> None:
        """`node` answers over none of the links that are open: dial it anew."""
        for link in self._open.get(node, ()):
            link.found_dead()

    def doubt(self, link: Link) -> None:
        """A relayed link led to silence: use its way last, and none that came over it before."""
        if link.relayed_through is None:
            return
        self.ways.add(link.remote, link.relayed_through)
        for other in (link, *self._open.get(link.remote, ())):
            other.doubted |= other.relayed_through == link.relayed_through

    async def dial(
        self, address: str, expected: NodeId | None = None, seconds: float | None = None
    ) -> Link:
        """Open a link to an address, whoever (or exactly who) answers there.

        It may take `seconds`, or DIAL_TIMEOUT_S.

        Raises:
            Unreachable: as Transport.dial; or that node is not allowed.
        """
        patience = DIAL_TIMEOUT_S if seconds is None else min(seconds, DIAL_TIMEOUT_S)
        return await self._adopt(await self._channel(address, expected, patience))

    async def _channel(self, address: str, expected: NodeId | None, seconds: float) -> Channel:
        with self.places.looking(address, expected):
            channel = await self._transport.dial(address, expected, seconds)
        self.places.answered(address, channel.remote)
        if not self._is_allowed(channel.remote):
            await channel.close()
            raise Unreachable(
                f"node {short_text(channel.remote)} at {address} is not on this node's allow list"
            )
        return channel

    async def _adopt(self, channel: Channel) -> Link:
        """Take a channel that was dialled into the pool."""
        link = Link(channel, self.traffic, dialled=True)
        self._register(link)
        if self._tasks.spawn(self._read(link), f"read {short_text(link.remote)}") is None:
            await self._end(link)
            raise Unreachable("this node is shutting down")
        return link

    async def to(self, node: NodeId, addresses: Iterable[str]) -> Link:
        """An open link to `node`, dialling it at whichever of `addresses` answers first.

        They are dialled as `race` does, relayed ones after the others; others tell of them, so
        those that lead to nobody in particular are left out (`dialable`). Takes at most
        DIAL_ALL_S; a link that `node` opens meanwhile is as good.

        Raises:
            Unreachable: none answered as that node.
        """
        if (link := self.find(node)) is not None:
            return link
        if node == self._own:
            return self._to_self(node)
        waiting = self._dialling.get(node)
        if waiting is None:
            waiting = asyncio.get_running_loop().create_future()
            # Nobody may be left to look at a failure; that is no fault.
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._dialling[node] = waiting
            work = self._dial_any(node, tuple(addresses), waiting)
            if self._tasks.spawn(work, f"dial {short_text(node)}") is None:
                self._dialling.pop(node, None)
                raise Unreachable("this node is shutting down")
        return await asyncio.shield(waiting)

    def _to_self(self, own: NodeId) -> Link:
        near, far = loopback(own)
        # The near end is registered last, so that `find` gives it and not the far one.
        for channel in (far, near):
            link = Link(channel, self.traffic, dialled=channel is near)
            self._open.setdefault(own, []).append(link)
            self._tasks.spawn(self._read(link), "read local")
        return self._open[own][-1]

    async def _dial_any(
        self, node: NodeId, addresses: tuple[str, ...], result: asyncio.Future[Link]
    ) -> None:
        problems: list[Unreachable] = []
        loop = asyncio.get_running_loop()
        until = loop.time() + DIAL_ALL_S

        def channel(address: str) -> Coroutine[Any, Any, Channel]:
            patience = min(DIAL_TIMEOUT_S, max(0.0, until - loop.time()))
            return self._channel(address, node, patience)

        places = self.ways.ordered(node, tuple(filter(dialable, addresses)))
        leads = self.ways.head_starts(node, places)
        dials = [partial(channel, address) for address in places]
        problem: Unreachable | None = None
        try:
            async with aclosing(race(dials, problems.append, result, leads)) as made:
                async for one in made:
                    # Whoever waits is told by `_register`.
                    await self._adopt(one)
                    break
        except Unreachable as error:
            problem = error
        except BaseException:
            # Who waits was not cancelled itself and must be told in words.
            problem = Unreachable(f"the dial to {short_text(node)} was given up")
            raise
        finally:
            if not result.done():
                self._dialling.pop(node, None)
                result.set_exception(problem or none_answered(node, problems))

    def _register(self, link: Link) -> None:
        if not link.dialled:
            # We may know a better way to it than it does to us.
            link.doubted = self.ways.is_bad(link.remote, link.relayed_through)
        mine = self._open.setdefault(link.remote, [])
        for other in mine:
            if other.useless:
                # Its other end may never learn that it is of no use any more.
                self._tasks.spawn(_hang_up(other), f"hang up {short_text(link.remote)}")
        mine.append(link)
        waiting = None if link.doubted else self._dialling.pop(link.remote, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(link)
        for callback in self._met:
            callback(link)

    async def _serve(self, link: Link) -> None:
        self._register(link)
        await self._read(link)

    async def surrender(self, link: Link) -> Channel:
        """Take a link out of the pool and give its channel, still open, to the caller.

        The caller is the handler that runs for a message of this link: nobody else reads the
        channel meanwhile, and it is closed when the handler returns, or the pool is. Returns when
        a send under way is done; others fail from now on. For all others the link has ended.

        Raises:
            ChannelClosed: the link has ended already, or was surrendered before.
        """
        if link not in self._open.get(link.remote, ()):
            raise ChannelClosed(f"the link to {short_text(link.remote)} is closed")
        channel = self._surrendered[link] = link.give_up()
        self._drop(link)
        await link.drained()
        return channel

    def _promptly(self, link: Link, frame: bytes) -> bool:
        """Handle a frame at once, if it can be; whether it was."""
        if link.closed:
            return False
        try:
            message, body = decode(frame)
        except ChannelClosed:
            # The reader gets it again, and ends the link.
            return False
        handler = self._prompt.get(type(message))
        if handler is None or not handler(link, message, body):
            return False
        link.count(type(message), len(frame))
        return True

    async def _read(self, link: Link) -> None:
        link.hear(partial(self._promptly, link))
        now = asyncio.get_running_loop().time
        began = now()
        try:
            while not link.closed:
                if now() - began > TURN_S:
                    # What came in at once is read without a pause: others want to be heard, too.
                    await asyncio.sleep(0)
                    began = now()
                await self._take_next(link)
        except ChannelClosed as error:
            log.debug("link to %s ended: %s", short_text(link.remote), error)
        finally:
            await self._end(link)

    async def _take_next(self, link: Link) -> None:
        """Have the next message handled.

        In a frame of its own: while a link waits it must not hold on to who handled the last one,
        which may be a Slice that was let go of meanwhile.
        """
        message, body = await link.receive()
        handler = None if message is None else self._handlers.get(type(message))
        if handler is not None:
            await handler(link, message, body)

    async def _end(self, link: Link) -> None:
        link.closed = True
        self._drop(link)
        given = self._surrendered.pop(link, None)
        with contextlib.suppress(ChannelClosed):
            await link.close()
            if given is not None:
                await given.close()

    def _drop(self, link: Link) -> None:
        mine = self._open.get(link.remote, [])
        if link not in mine:
            return
        mine.remove(link)
        if not mine:
            self._open.pop(link.remote, None)
        for callback in self._ended:
            callback(link)

    async def close(self) -> None:
        """Close every link and end every task."""
        links = [link for mine in self._open.values() for link in mine]
        given = tuple(self._surrendered.values())
        closing = (*map(_hang_up, links), *(channel.close() for channel in given))
        await asyncio.gather(*closing, return_exceptions=True)
        await self._tasks.close()


async def _hang_up(link: Link) -> None:
    """Close a link; one that fell silent does not confirm it, so nobody has to wait for that."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SILENT_CLOSE_S if link.silent else None):
            await link.close()
