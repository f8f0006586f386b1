"""Frames: one message, and the raw bytes (a tensor, a piece of a bundle) that follow it.

Layout: 4 bytes little-endian length of the message, the message in msgpack, the body.
"""

from __future__ import annotations

import msgspec

from diffuse_core.domain.messages import AnyMessage
from diffuse_core.domain.sealed_stream import MAX_FRAME_BYTES
from diffuse_core.errors import ChannelClosed

MAX_BODY_BYTES = MAX_FRAME_BYTES - 64 * 2**10
"""What a body may take, so that a message always fits beside it."""

_HEADER = 4
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
    head = _encoder.encode(message)
    frame = b"".join((len(head).to_bytes(_HEADER, "little"), head, body))
    if len(frame) > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {len(frame)} bytes passes the limit of {MAX_FRAME_BYTES}")
    return frame


def decode(frame: bytes) -> tuple[AnyMessage | None, memoryview]:
    """The message and its body; (None, empty) for a kind this version does not know.

    Raises:
        ChannelClosed: the frame is malformed; whoever sent it is not to be listened to further.
    """
    view = memoryview(frame)
    size = int.from_bytes(view[:_HEADER], "little")
    if len(view) < _HEADER + size:
        raise ChannelClosed("a frame was shorter than it claims; the channel was closed")
    head = view[_HEADER : _HEADER + size]
    try:
        return _decoder.decode(head), view[_HEADER + size :]
    except _MALFORMED as error:
        if _unknown_kind(head):
            return None, memoryview(b"")
        raise ChannelClosed(f"a malformed message arrived: {error}") from error


def _unknown_kind(head: memoryview) -> bool:
    try:
        return _tag_decoder.decode(head).t not in _KNOWN
    except _MALFORMED:
        return False
