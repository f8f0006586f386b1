"""A link: one open channel, its order of frames, and what went over it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.domain.codec import decode, encode
from diffuse_core.domain.identity import short_text
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.messages import AnyMessage
    from diffuse_core.ports import Channel


class Traffic:
    """Bytes of frames sent and received, over all links; and how many of each kind of message.

    Kinds are classes of messages, so there are only so many; NoneType is what this version does
    not know.
    """

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.received: dict[type, list[int]] = {}
        """Frames and their bytes, by kind."""
        self.sent: dict[type, list[int]] = {}

    def got(self, kind: type, size: int) -> None:
        """A frame came in."""
        self.bytes_in += size
        _add(self.received, kind, size)

    def gave(self, kind: type, size: int) -> None:
        """A frame was handed to the transport."""
        self.bytes_out += size
        _add(self.sent, kind, size)


def _add(counts: dict[type, list[int]], kind: type, size: int) -> None:
    count = counts.get(kind)
    if count is None:
        counts[kind] = [1, size]
    else:
        count[0] += 1
        count[1] += size


class Link:
    """One open channel. Frames leave in the order of `send` calls."""

    def __init__(self, channel: Channel, traffic: Traffic, *, dialled: bool) -> None:
        self._traffic = traffic
        self._channel = channel
        self._order = asyncio.Lock()
        self.remote = channel.remote
        self.remote_address = channel.remote_address
        self.relayed_through = channel.relayed_through
        self.dialled = dialled
        self.heard = 0
        self.doubted = False
        self.closed = False
        self._given_up = False
        self._silent_at = self._useless_at = -1
        self.ended = asyncio.Event()

    async def send(self, message: AnyMessage, body: bytes | memoryview = b"") -> None:
        """Send one message; returns when the transport took it. Raises ChannelClosed."""
        frame = encode(message, body)
        async with self._order:
            if self.closed:
                raise ChannelClosed(f"the link to {short_text(self.remote)} is closed")
            await self._channel.send(frame)
        self._traffic.gave(type(message), len(frame))

    def idle(self, size: int) -> bool:
        """Whether a message and its body, of so many bytes at most, can be sent without waiting.

        Never on a channel that cannot tell.
        """
        idle = getattr(self._channel, "idle", None)
        return idle is not None and not self.closed and not self._order.locked() and idle(size)

    def send_now(
        self, message: AnyMessage, body: bytes | memoryview = b"", *, soon: bool = False
    ) -> None:
        """Send one message while `idle`; `soon`: with others, at the end of this turn of the loop.

        What is sent soon costs less, and whoever it is for is woken once for all of it.
        """
        frame = encode(message, body)
        self._channel.send_now(frame, soon=soon)  # type: ignore[attr-defined]
        self._traffic.gave(type(message), len(frame))

    async def receive(self) -> tuple[AnyMessage | None, memoryview]:
        """The next message and its body; None for a kind this version does not know."""
        frame = await self._channel.receive()
        message, body = decode(frame)
        self.count(type(message), len(frame))
        return message, body

    def count(self, kind: type, size: int) -> None:
        """A frame of that kind and so many bytes came in."""
        self._traffic.got(kind, size)
        self.heard += 1

    def fell_silent(self) -> None:
        """The other end does not answer what it should; until it is heard again."""
        self._silent_at = self.heard

    @property
    def silent(self) -> bool:
        """Whether it fell silent and nothing came since."""
        return self._silent_at == self.heard

    def found_dead(self) -> None:
        """Whoever is at the other end was found dead: this leads nowhere until it is heard again.

        After a cut, what was sent over a link meanwhile goes out when TCP tries again, which may
        be as long after the cut as that took.
        """
        self._silent_at = self._useless_at = self.heard

    @property
    def useless(self) -> bool:
        """Whether its other end was found dead and nothing came since."""
        return self._useless_at == self.heard

    def hear(self, take: Callable[[bytes], bool]) -> None:
        """Offer frames to `take` before `receive` gives them, where the channel can do that."""
        hear = getattr(self._channel, "hear", None)
        if hear is not None:
            hear(take)

    async def close(self) -> None:
        """End it; idempotent. A channel that was surrendered is left to its owner."""
        self.closed = True
        self.ended.set()
        if not self._given_up:
            await self._channel.close()

    def give_up(self) -> Channel:
        """Send nothing from now on and leave the channel to the caller (Links.surrender)."""
        self.closed = self._given_up = True
        self.ended.set()
        return self._channel

    async def drained(self) -> None:
        """Return when no send is under way."""
        async with self._order:
            return
