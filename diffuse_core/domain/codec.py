"""Frames: one message, and the raw bytes (a tensor, a piece of a bundle) that follow it.

Layout: the length of the message, the message in msgpack, the body. The length is one byte up to
LONGEST_SHORT, else LONG and 4 bytes little-endian: what goes round for every token is short.
"""

from __future__ import annotations

import msgspec

from diffuse_core.domain.messages import AnyMessage
from diffuse_core.domain.sealed_stream import MAX_FRAME_BYTES
from diffuse_core.errors import ChannelClosed

MAX_BODY_BYTES = MAX_FRAME_BYTES - 64 * 2**10
"""What a body may take, so that a message always fits beside it."""

LONG = 0xFF
LONGEST_SHORT = LONG - 1
_LONG_HEADER = 5
# The last is what fields that are not known here, nested a thousand deep, lead to.
_MALFORMED = (msgspec.DecodeError, ValueError, RecursionError)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)


class _Tagged(msgspec.Struct):
    """Just the tag, to tell an unknown kind from a malformed message."""

    t: str


_tag_decoder = msgspec.msgpack.Decoder(_Tagged)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in AnyMessage.__args__)


def encode(message: AnyMessage, body: bytes | memoryview = b"") -> bytes:
    """One frame.

    Raises:
        ValueError: the frame would pass MAX_FRAME_BYTES; the caller must cut it smaller.
    """
    frame = framed(_encoder.encode(message), body)
    if len(frame) > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {len(frame)} bytes passes the limit of {MAX_FRAME_BYTES}")
    return frame


def framed(head: bytes, body: bytes | memoryview = b"") -> bytes:
    """The frame of a message that is encoded already."""
    size = len(head)
    length = size.to_bytes() if size <= LONGEST_SHORT else b"\xff" + size.to_bytes(4, "little")
    return b"".join((length, head, body))


def decode(frame: bytes) -> tuple[AnyMessage | None, memoryview]:
    """The message and its body; (None, empty) for a kind this version does not know.

    Raises:
        ChannelClosed: the frame is malformed; whoever sent it is not to be listened to further.
    """
    view = memoryview(frame)
    size, start = (view[0], 1) if len(view) else (LONG, _LONG_HEADER)
    if size == LONG:
        size, start = int.from_bytes(view[1:_LONG_HEADER], "little"), _LONG_HEADER
    if len(view) < start + size:
        raise ChannelClosed("a frame was shorter than it claims; the channel was closed")
    head = view[start : start + size]
    try:
        return _decoder.decode(head), view[start + size :]
    except _MALFORMED as error:
        if _unknown_kind(head):
            return None, memoryview(b"")
        raise ChannelClosed(f"a malformed message arrived: {error}") from error


def _unknown_kind(head: memoryview) -> bool:
    try:
        return _tag_decoder.decode(head).t not in _KNOWN
    except _MALFORMED:
        return False
