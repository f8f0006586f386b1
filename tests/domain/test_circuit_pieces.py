"""Sealed messages cut into pieces for a circuit, and put together again."""

from __future__ import annotations

import pytest

from diffuse_core.domain.circuit_pieces import MAX_PIECE_BYTES, Joiner, cut
from diffuse_core.domain.sealed_stream import MAX_FRAME_BYTES, MAX_SEALED_BYTES
from diffuse_core.errors import ChannelClosed

ROOM = MAX_PIECE_BYTES - 1


@pytest.mark.parametrize(
    "size", [0, 1, ROOM - 1, ROOM, ROOM + 1, 2 * ROOM, 2 * ROOM + 7, MAX_SEALED_BYTES]
)
def test_messages_of_every_size_come_out_as_they_went_in(size: int) -> None:
    wire = (b"0123456789abcde" * (size // 15 + 1))[:size]
    joiner = Joiner()
    for _ in range(2):
        pieces = list(cut(wire))
        assert len(pieces) == max(1, -(-size // ROOM))
        assert max(map(len, pieces)) <= MAX_PIECE_BYTES < MAX_FRAME_BYTES
        *before, last = map(joiner.take, pieces)
        assert before == [None] * (len(pieces) - 1)
        assert last == wire


@pytest.mark.parametrize(
    "piece",
    [
        b"",
        b"\x02x",
        b"\x00",
        b"\x00" + bytes(ROOM - 1),
        b"\x00" + bytes(ROOM + 1),
        b"\x01" + bytes(ROOM + 1),
        b"\xff" + bytes(ROOM),
    ],
    ids=len,
)
def test_what_is_no_piece_is_refused(piece: bytes) -> None:
    with pytest.raises(ChannelClosed, match="malformed"):
        Joiner().take(piece)


def test_a_message_without_end_is_refused_when_it_passes_the_limit() -> None:
    joiner = Joiner()
    more = b"\x00" + bytes(ROOM)
    for _ in range(MAX_SEALED_BYTES // ROOM):
        assert joiner.take(more) is None
    with pytest.raises(ChannelClosed, match="size limit"):
        joiner.take(more)
    joiner = Joiner()
    for _ in range(MAX_SEALED_BYTES // ROOM):
        joiner.take(more)
    with pytest.raises(ChannelClosed, match="size limit"):
        joiner.take(b"\x01" + bytes(MAX_SEALED_BYTES % ROOM + 1))


def test_a_message_may_be_bounded_more_narrowly_and_widely_again() -> None:
    joiner = Joiner(100)
    assert joiner.take(b"\x01" + bytes(100)) == bytes(100)
    with pytest.raises(ChannelClosed, match="size limit"):
        joiner.take(b"\x01" + bytes(101))
    joiner = Joiner(100)
    joiner.most = MAX_SEALED_BYTES
    assert joiner.take(b"\x01" + bytes(101)) == bytes(101)
