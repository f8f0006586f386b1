"""The links as a Stage of the Client's own sees them; what it sends on tells no token.

Links have one handler for each kind of message, and here are two Stages. Each is given links of
its own: its handlers are kept apart, its way to the other one is in this process, and to the rest
of the network it uses the pool that there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from diffuse_core.domain.bounded import forget_oldest
from diffuse_core.domain.messages import ForwardHidden

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.messages import AnyMessage
    from diffuse_core.services.links import Handler, Link, LinkEnded, Links, PromptHandler

MAX_GUESSES = 256
"""Groups of guessed rows remembered, of all Sessions: each has one or two under way."""


class Guesses:
    """Guessed tokens, which are ids of the prompt or the answer.

    The Stages between need to know how many they are; which, only our own last Stage.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, int, int], tuple[int, ...]] = {}

    def conceal(self, message: ForwardHidden) -> ForwardHidden:
        """What is sent in place of rows with guesses: as many zeros."""
        key = (message.session, message.epoch, message.position)
        self._known.pop(key, None)
        if not message.drafts:
            return message
        self._known[key] = message.drafts
        forget_oldest(self._known, MAX_GUESSES)
        return msgspec.structs.replace(message, drafts=(0,) * len(message.drafts))

    def reveal(self, message: ForwardHidden) -> ForwardHidden:
        """What was sent, when it comes back; whatever others say of it."""
        key = (message.session, message.epoch, message.position)
        return msgspec.structs.replace(message, drafts=self._known.get(key, ()))


class DiscreetLink:
    """A link to a stranger that runs the next Stage. Stands for it as far as Stages use links."""

    def __init__(self, link: Link, guesses: Guesses) -> None:
        self.link = link
        self._guesses = guesses
        self.remote = link.remote
        self.relayed_through = link.relayed_through

    @property
    def closed(self) -> bool:
        """Whether it ended."""
        return self.link.closed

    @property
    def heard(self) -> int:
        """Messages that came over it."""
        return self.link.heard

    async def send(self, message: AnyMessage, body: bytes | memoryview = b"") -> None:
        """Send one message. Raises ChannelClosed."""
        if isinstance(message, ForwardHidden):
            message = self._guesses.conceal(message)
        await self.link.send(message, body)

    def idle(self, size: int) -> bool:
        """As Link.idle."""
        return self.link.idle(size)

    def send_now(
        self, message: AnyMessage, body: bytes | memoryview = b"", *, soon: bool = False
    ) -> None:
        """As Link.send_now."""
        if isinstance(message, ForwardHidden):
            message = self._guesses.conceal(message)
        self.link.send_now(message, body, soon=soon)

    async def close(self) -> None:
        """End it."""
        await self.link.close()


class OwnLinks:
    """What `services.stage` needs of Links."""

    def __init__(self, pool: Links, own: NodeId, guesses: Guesses) -> None:
        self._pool = pool
        self._own = own
        self._guesses = guesses
        self._handlers: dict[type, Handler[Any]] = {}
        self._prompt: dict[type, PromptHandler[Any]] = {}
        self._listening: dict[LinkEnded, LinkEnded] = {}
        self._discreet: dict[Link, DiscreetLink] = {}
        self.inner: Link | None = None
        """The way to the other own Stage, where there is one."""

    def handle(self, kind: type, handler: Handler[Any]) -> None:
        """As Links.handle."""
        self._handlers[kind] = handler

    def handle_promptly(self, kind: type, handler: PromptHandler[Any]) -> None:
        """As Links.handle_promptly."""
        self._prompt[kind] = handler

    def unhandle(self, *kinds: type) -> None:
        """As Links.unhandle."""
        for kind in kinds:
            self._handlers.pop(kind, None)
            self._prompt.pop(kind, None)

    def promptly(self, link: Link, message: AnyMessage, body: memoryview) -> bool:
        """Give a message to whoever handles its kind at once; whether it is done with."""
        handler = self._prompt.get(type(message))
        return handler is not None and handler(link, message, body)

    async def dispatch(self, link: Link, message: AnyMessage, body: memoryview) -> None:
        """Give a message to whoever handles its kind."""
        handler = self._handlers.get(type(message))
        if handler is not None:
            await handler(link, message, body)

    def on_ended(self, callback: LinkEnded) -> None:
        """As Links.on_ended; of a link that was given out in disguise as well."""

        def ended(link: Link) -> None:
            callback(link)
            if (discreet := self._discreet.pop(link, None)) is not None:
                callback(cast("Link", discreet))

        self._listening[callback] = ended
        self._pool.on_ended(ended)

    def off_ended(self, callback: LinkEnded) -> None:
        """As Links.off_ended."""
        if (ended := self._listening.pop(callback, None)) is not None:
            self._pool.off_ended(ended)

    def find(self, node: NodeId) -> Link | None:
        """As Links.find; a stranger's link never comes as it is: guesses would go out with it."""
        if node == self._own:
            return self.inner
        link = self._pool.find(node)
        return None if link is None else self._disguised(link)

    def doubt(self, link: Link) -> None:
        """As Links.doubt."""
        self._pool.doubt(link.link if isinstance(link, DiscreetLink) else link)

    async def to(self, node: NodeId, addresses: Iterable[str]) -> Link:
        """As Links.to.

        Raises:
            Unreachable: none of the addresses answered as that node.
        """
        if node == self._own and self.inner is not None:
            return self.inner
        return self._disguised(await self._pool.to(node, addresses))

    def _disguised(self, link: Link) -> Link:
        discreet = self._discreet.get(link) or DiscreetLink(link, self._guesses)
        if not link.closed:
            self._discreet[link] = discreet
        return cast("Link", discreet)
