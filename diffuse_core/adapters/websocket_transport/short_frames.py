"""Short messages, past most of the library: whole ones in, and out those of a moment in one piece.

A token's way through a ring is a few short messages, and right after a pass the caches hold
weights, not code: whatever runs then costs several times its usual time, so that what counts is
to run little. What is not plain and whole goes the library's way, in either direction.
"""

from __future__ import annotations

import secrets
import struct
from typing import TYPE_CHECKING, Any

from websockets.asyncio.connection import Connection
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, OPEN
from websockets.utils import apply_mask as _slow_mask

try:
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover - the library was built without
    apply_mask = _slow_mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from websockets.protocol import Protocol

SHORT_BYTES = 16 * 2**10
"""Of what a message carries."""
POSTED_BYTES = 48 * 2**10
"""So much may have been posted before another message. With that one it is still no more than a
transport buffers before it asks to wait."""

_WHOLE = 0x80 | Opcode.BINARY
_MASKED = 0x80
_LENGTH = 0x7F
_TWO_BYTES = 126
_MASK_BYTES = 4
_HEADER = struct.Struct("!BB")
_LONGER_HEADER = struct.Struct("!BBH")


def write(payload: bytes, *, masked: bool) -> bytes:
    """The only frame of a binary message of less than 64 KiB (RFC 6455 section 5.2)."""
    size, flag = len(payload), _MASKED if masked else 0
    if size < _TWO_BYTES:
        header = _HEADER.pack(_WHOLE, flag | size)
    else:
        header = _LONGER_HEADER.pack(_WHOLE, flag | _TWO_BYTES, size)
    if not masked:
        return header + payload
    mask = secrets.token_bytes(_MASK_BYTES)
    return b"".join((header, mask, apply_mask(payload, mask)))


def read(data: bytes, at: int = 0, *, masked: bool) -> tuple[bytes, int] | None:
    """What `write` made one message of that is in `data` from `at` on, and where that ends.

    None for anything else, and for a part of a message.
    """
    start = at + _HEADER.size
    if len(data) < start or data[at] != _WHOLE or bool(data[at + 1] & _MASKED) != masked:
        return None
    size = data[at + 1] & _LENGTH
    if size == _TWO_BYTES:
        start = at + _LONGER_HEADER.size
        size = int.from_bytes(data[start - 2 : start], "big")
    elif size > _TWO_BYTES:
        return None
    mask = data[start : start + _MASK_BYTES] if masked else b""
    start += len(mask)
    end = start + size
    if len(data) < end:
        return None
    return (apply_mask(data[start:end], mask) if masked else data[start:end]), end


class ShortFrames(Connection):
    """A connection that does short messages itself where nothing else is under way."""

    _take: Callable[[bytes], bytes | None] | None = None
    _waiting = False
    """The receiver waits, and nothing is there for it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._posted: list[bytes] = []
        self._posted_bytes = 0

    def idle(self, size: int) -> bool:
        """Whether a message about that long can be sent now, without waiting."""
        return (
            size <= SHORT_BYTES
            and self._posted_bytes <= POSTED_BYTES
            and self.protocol.state is OPEN
            and self.send_in_progress is None
            and not self.transport.is_closing()
            and not self.transport.get_write_buffer_size()
        )

    def send_now(self, payload: bytes, *, soon: bool = False) -> None:
        """Send a message while `idle`; `soon` at the end of this turn of the event loop.

        What is sent soon leaves in one piece: that is one call of the kernel for all of it, and
        the other end is woken once, and finds all of it.
        """
        frame = write(payload, masked=self.protocol.side is CLIENT)
        if not soon and not self._posted:
            self.transport.write(frame)
            return
        if not self._posted:
            self.loop.call_soon(self.flush)
        self._posted.append(frame)
        self._posted_bytes += len(frame)
        if not soon:
            self.flush()

    def flush(self) -> None:
        """Let what is to be sent soon go now; before anything else is sent."""
        if not self._posted:
            return
        together = b"".join(self._posted)
        self._posted.clear()
        self._posted_bytes = 0
        # The library may have answered the other end's close since they were posted.
        if not self.transport.is_closing() and not self.protocol.eof_sent:
            self.transport.write(together)

    def hear(self, take: Callable[[bytes], bytes | None]) -> None:
        """Offer each short message that is waited for to `take` as soon as it is there.

        What it returns in its place is what the receiver gets; None when that is nothing.
        """
        self._take = take

    async def next_message(self) -> bytes:
        """The next message that `take` did not take. Raises websockets.ConnectionClosed."""
        self._waiting = not self.recv_messages.frames
        try:
            return await self.recv(decode=False)
        finally:
            self._waiting = False

    def take_now(self, data: bytes) -> bytes:
        """Take the whole short messages that what arrived begins with; the rest of it."""
        waiting = self._waiting and self._take is not None
        # Whatever else comes in now comes after it, and must not be heard before.
        self._waiting = False
        if self.protocol.state is not OPEN or not _between_messages(self.protocol):
            return data
        masked, at = self.protocol.side is not CLIENT, 0
        while (found := read(data, at, masked=masked)) and not self.recv_messages.closed:
            payload, at = found
            left = self._take(payload) if waiting and self._take is not None else payload
            if self.transport.is_closing():
                return b""
            if left is not None:
                waiting = False
                self.recv_messages.put(Frame(Opcode.BINARY, left))
        rest = data[at:]
        self._waiting = waiting and not rest
        return rest


def _between_messages(protocol: Protocol) -> bool:
    """Whether nothing of a message has arrived yet.

    The library's parser is a generator; between frames it waits in its reader's `at_eof`. Where
    it is built otherwise, this is false and everything goes its way.
    """
    step: Any = protocol.parser
    while (inner := getattr(step, "gi_yieldfrom", None)) is not None:
        step = inner
    return getattr(step, "__name__", "") == "at_eof" and _unfragmented(protocol)


def _unfragmented(protocol: Protocol) -> bool:
    # As websockets calls it from 16 on, and before.
    new: object = getattr(protocol, "current_size", None)
    old: object = getattr(protocol, "cur_size", None)
    return new is None and old is None
