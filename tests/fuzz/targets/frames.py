"""Frames as they come out of a channel: any message, any body."""

from __future__ import annotations

import random

import msgspec

from diffuse_core.domain.codec import decode, encode, framed
from diffuse_core.domain.messages import AnyMessage
from diffuse_core.domain.sealed_stream import MAX_FRAME_BYTES
from diffuse_core.errors import ChannelClosed
from tests.fuzz.valid_values import ValidValues

_KINDS = AnyMessage.__args__
WORDS = (b"\xa1t", *(msgspec.msgpack.encode(kind.__struct_config__.tag) for kind in _KINDS))


def target(data: bytes) -> str:
    """What decodes is encoded to what decodes to the same."""
    try:
        message, body = decode(data)
    except ChannelClosed:
        return "malformed"
    if message is None:
        assert not body
        return "unknown kind"
    again = encode(message, body)
    if len(again) > MAX_FRAME_BYTES:
        return "large"
    repeated, rest = decode(again)
    # Of bytes, since a number that is none is not even equal to itself.
    assert encode(repeated, rest) == again
    assert rest == body
    return message.__struct_config__.tag  # type: ignore[no-any-return]


def samples() -> dict[str, bytes]:
    """Two frames of every kind, some with a body."""
    found = {}
    for kind in _KINDS:
        tag = kind.__struct_config__.tag
        values = ValidValues(random.Random(tag))
        for number in range(2):
            found[f"{tag}-{number}"] = encode(values.make(kind), bytes(number * 8))
    unknown = msgspec.msgpack.encode({"t": "teleport", "to": [1, {"x": None}]})
    found["unknown"] = framed(unknown)
    # Deeper than Python goes, in a field that is not known here.
    deep = b"\x83\xa1t\xa4ping\xa5nonce\x01\xa1x" + b"\x91" * 5000 + b"\xc0"
    found["deep"] = framed(deep)
    return found
