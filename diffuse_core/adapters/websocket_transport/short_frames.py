"""Short messages, past most of the library: one piece in, one piece out.

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
"""Of what a message carries. Well below what a transport buffers before it asks to wait."""

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


def read(data: bytes, *, masked: bool) -> bytes | None:
    """The payload, if `data` is exactly what `write` makes; None for anything else."""
    if len(data) < _HEADER.size or data[0] != _WHOLE or bool(data[1] & _MASKED) != masked:
        return None
    size, at = data[1] & _LENGTH, _HEADER.size
    if size == _TWO_BYTES:
        size, at = int.from_bytes(data[at : at + 2], "big"), _LONGER_HEADER.size
    start = at + (_MASK_BYTES if masked else 0)
    if len(data) != start + size:
        return None
    return apply_mask(data[start:], data[at:start]) if masked else data[start:]


class ShortFrames(Connection):
    """A connection that does short messages itself where nothing else is under way."""

    _take: Callable[[bytes], bytes | None] | None = None
    _waiting = False
    """The receiver waits, and nothing is there for it."""

    def idle(self, size: int) -> bool:
        """Whether a message about that long can be sent now, without waiting."""
        return (
            size <= SHORT_BYTES
            and self.protocol.state is OPEN
            and self.send_in_progress is None
            and not self.transport.is_closing()
            and not self.transport.get_write_buffer_size()
        )

    def send_now(self, payload: bytes) -> None:
        """Send a message while `idle`."""
        self.transport.write(write(payload, masked=self.protocol.side is CLIENT))

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

    def take_now(self, data: bytes) -> bool:
        """Take what arrived if it is one whole short message; whether it was."""
        waiting = self._waiting
        # Whatever else comes in now comes after it, and must not be heard before.
        self._waiting = False
        if self.protocol.state is not OPEN or not _between_messages(self.protocol):
            return False
        payload = read(data, masked=self.protocol.side is not CLIENT)
        if payload is None or self.recv_messages.closed:
            return False
        if waiting and self._take is not None:
            left = self._take(payload)
            if left is None:
                self._waiting = True
                return True
            payload = left
        self.recv_messages.put(Frame(Opcode.BINARY, payload))
        return True


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
