"""Frames: what is encoded comes back; what is malformed closes the channel and costs nothing."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.codec import LONG, LONGEST_SHORT, MAX_BODY_BYTES, decode, encode
from diffuse_core.domain.messages import Ping, Push
from diffuse_core.domain.owner_messages import NotAllowed
from diffuse_core.domain.sealed_stream import MAX_FRAME_BYTES
from diffuse_core.errors import ChannelClosed


@given(st.binary(max_size=500))
def test_a_frame_comes_back_with_its_body(body: bytes) -> None:
    message, rest = decode(encode(Ping(7), body))
    assert message == Ping(7)
    assert bytes(rest) == body


def test_a_body_of_the_largest_size_fits_and_one_more_frame_byte_does_not() -> None:
    assert len(encode(Ping(1), bytes(MAX_BODY_BYTES))) <= MAX_FRAME_BYTES
    with pytest.raises(ValueError, match="passes the limit"):
        encode(Ping(1), bytes(MAX_FRAME_BYTES))


@pytest.mark.parametrize("size", [1, LONGEST_SHORT - 1, LONGEST_SHORT, LONG, 1000])
def test_a_short_message_takes_one_byte_more_and_others_five(size: int) -> None:
    for length in range(max(0, size - 60), size + 1):
        message = NotAllowed("x" * min(length, 512))
        head = msgspec.msgpack.encode(message)
        frame = encode(message, b"body")
        assert len(frame) == len(head) + 4 + (1 if len(head) <= LONGEST_SHORT else 5)
        assert decode(frame) == (message, b"body")


def _frame(content: object) -> bytes:
    head = msgspec.msgpack.encode(content)
    return b"\xff" + len(head).to_bytes(4, "little") + head


def test_a_kind_from_a_newer_version_is_ignored() -> None:
    message, rest = decode(_frame({"t": "teleport", "to": 3}) + b"body")
    assert message is None
    assert not rest


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x05",
        b"\xff",
        b"\xff\x01\x00\x00",
        b"\xff" + (2**32 - 1).to_bytes(4, "little") + b"x",
        _frame({"t": "ping", "nonce": "one"}),
        _frame({"t": "ping"}),
        _frame({"nonce": 1}),
        _frame([1, 2]),
        _frame({"t": 5}),
        b"\x01\xc1",
        b"\x00",
    ],
)
def test_a_malformed_frame_closes_the_channel(frame: bytes) -> None:
    with pytest.raises(ChannelClosed):
        decode(frame)


@given(st.binary(max_size=200))
def test_noise_never_raises_anything_else(frame: bytes) -> None:
    try:
        message, _ = decode(frame)
    except ChannelClosed:
        return
    assert message is None or isinstance(message, msgspec.Struct)


def test_truncation_anywhere_in_the_message_is_seen() -> None:
    frame = encode(Push(last=False))
    for length in range(len(frame)):
        with pytest.raises(ChannelClosed):
            decode(frame[:length])
