"""Frames inside a channel: whole, once, in order, or not at all."""

from __future__ import annotations

import pytest

from diffuse_core.domain import sealed_stream as module
from diffuse_core.domain.noise import MAX_MESSAGE_BYTES, CipherState
from diffuse_core.domain.sealed_stream import (
    MAX_FRAME_BYTES,
    MAX_SEALED_BYTES,
    REKEY_S,
    SealedStream,
    sealed_size,
)
from diffuse_core.errors import ChannelClosed

CHUNK = MAX_MESSAGE_BYTES - 17


def streams() -> tuple[SealedStream, SealedStream]:
    there, back = b"t" * 32, b"b" * 32
    return (
        SealedStream(CipherState(there), CipherState(back)),
        SealedStream(CipherState(back), CipherState(there)),
    )


@pytest.mark.parametrize(
    "size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 5, MAX_FRAME_BYTES]
)
def test_frames_of_every_size_arrive_unchanged(size: int) -> None:
    a, b = streams()
    frame = (b"0123456789abcde" * (size // 15 + 1))[:size]
    for sends, gets in ((a, b), (b, a), (a, b)):
        wire = sends.seal(frame, 0.0)
        assert size < len(wire) <= MAX_SEALED_BYTES
        assert gets.open(wire) == frame


def test_the_largest_frame_just_fits_the_bound() -> None:
    a, _ = streams()
    a.seal(b"", 0.0)
    assert len(a.seal(bytes(MAX_FRAME_BYTES), REKEY_S)) == MAX_SEALED_BYTES
    with pytest.raises(ValueError, match="passes"):
        a.seal(bytes(MAX_FRAME_BYTES + 1), 0.0)


@pytest.mark.parametrize("size", [0, 1, CHUNK, CHUNK + 1, 5 * CHUNK])
def test_what_a_frame_takes_on_the_wire_at_most(size: int) -> None:
    a, _ = streams()
    assert len(a.seal(bytes(size), 0.0)) < sealed_size(size)
    assert len(a.seal(bytes(size), REKEY_S)) == sealed_size(size)


def test_oversized_wire_messages_are_refused() -> None:
    _, b = streams()
    with pytest.raises(ChannelClosed, match="size"):
        b.open(bytes(MAX_SEALED_BYTES + 1))
    with pytest.raises(ChannelClosed, match="ended"):
        b.open(b"")


def test_every_flipped_bit_kills_the_stream_for_good() -> None:
    wire_size = len(streams()[0].seal(b"payload", 0.0))
    for at in range(wire_size * 8):
        a, b = streams()
        wire = bytearray(a.seal(b"payload", 0.0))
        wire[at // 8] ^= 1 << at % 8
        with pytest.raises(ChannelClosed):
            b.open(bytes(wire))
        with pytest.raises(ChannelClosed, match="ended"):
            b.open(a.seal(b"next", 0.0))


def test_a_message_of_any_other_length_kills_the_stream_for_good() -> None:
    for make in (lambda a: a.seal(b"payload", 0.0), lambda a: a.close()):
        whole = make(streams()[0])
        shorter = [whole[:size] for size in range(len(whole))]
        for wire in (*shorter, whole + b"x", whole + bytes(19), whole + whole):
            _, b = streams()
            with pytest.raises(ChannelClosed):
                b.open(wire)
            with pytest.raises(ChannelClosed, match="ended"):
                b.open(whole)


def test_replay_reordering_loss_and_reflection_are_refused() -> None:
    a, b = streams()
    first, second = a.seal(b"1", 0.0), a.seal(b"2", 0.0)
    assert b.open(first) == b"1"
    with pytest.raises(ChannelClosed):
        b.open(first)
    a, b = streams()
    a.seal(b"lost", 0.0)
    with pytest.raises(ChannelClosed):
        b.open(a.seal(b"2", 0.0))
    a, b = streams()
    mine = a.seal(b"mine", 0.0)
    with pytest.raises(ChannelClosed):
        a.open(mine)
    assert b.open(mine) == b"mine"
    assert second != first


def test_a_frame_cannot_be_cut_or_extended_at_message_borders() -> None:
    frame = bytes(2 * CHUNK + 10)
    border = MAX_MESSAGE_BYTES + 2
    for change in (
        lambda w: w[:border],
        lambda w: w[: 2 * border],
        lambda w: w[border:],
        lambda w: w[:-1],
        lambda w: w + b"\x00",
        lambda w: w + b"\x00\x00",
    ):
        a, b = streams()
        wire = a.seal(frame, 0.0)
        with pytest.raises(ChannelClosed):
            b.open(change(wire))
    a, b = streams()
    with pytest.raises(ChannelClosed):
        b.open(a.seal(b"one", 0.0) + a.seal(b"two", 0.0))


@pytest.mark.parametrize("plain", [b"", b"\x03x", b"\x04", b"\x00x", b"\xff"])
def test_unknown_kinds_and_needless_pieces_are_refused(plain: bytes) -> None:
    a, b = streams()
    with pytest.raises(ChannelClosed):
        b.open(a._encrypt(plain))


def test_a_farewell_is_authenticated_and_final() -> None:
    a, b = streams()
    last, farewell = a.seal(b"last", 0.0), a.close()
    assert b.open(last) == b"last"
    assert b.open(farewell) is None
    with pytest.raises(ChannelClosed):
        b.open(farewell)
    for late in (a.close, lambda: a.seal(b"late", 0.0)):
        with pytest.raises(ChannelClosed, match="closed"):
            late()
    # The other direction goes on until it says farewell too.
    assert a.open(b.seal(b"bye", 0.0)) == b"bye"


def test_both_directions_rekey_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REKEY_MESSAGES", 3)
    a, b = streams()
    for number in range(10):
        assert b.open(a.seal(b"%d" % number, 0.0)) == b"%d" % number
    big = bytes(5 * CHUNK)
    assert a.open(b.seal(big, 0.0)) == big
    assert b.open(a.seal(big, 0.0)) == big
    assert a.open(b.close()) is None


def test_a_receiver_that_does_not_rekey_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = streams()
    monkeypatch.setattr(module, "REKEY_MESSAGES", 1)
    a.seal(b"rekeys after this", 0.0)
    monkeypatch.undo()
    b._receiving._nonce = 1
    with pytest.raises(ChannelClosed):
        b.open(a.seal(b"x", 0.0))
