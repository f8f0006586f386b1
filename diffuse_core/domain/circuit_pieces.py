"""Pieces: how the sealed messages of a relayed channel travel through a Sentinel.

One sealed message is cut into pieces of at most MAX_PIECE_BYTES, each a frame of the channel to
the Sentinel, so that no circuit holds up others for long and a Sentinel holds little of any. The
first byte says whether more of the message follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.sealed_stream import MAX_SEALED_BYTES
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PIECE_BYTES = 64 * 2**10

_MORE, _LAST = b"\x00", b"\x01"
_ROOM = MAX_PIECE_BYTES - 1


def cut(wire: bytes) -> Iterator[bytes]:
    """The pieces of one sealed message, in order."""
    view = memoryview(wire)
    last = max(0, len(wire) - 1) // _ROOM * _ROOM
    for at in range(0, last + 1, _ROOM):
        yield b"".join((_LAST if at == last else _MORE, view[at : at + _ROOM]))


class Joiner:
    """Puts the pieces of one direction together again.

    A message has `most` bytes at most; it may be set anew between two messages, so that who is
    not proven yet can fill little memory.
    """

    def __init__(self, most: int = MAX_SEALED_BYTES) -> None:
        self.most = most
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, piece: bytes) -> bytes | None:
        """The sealed message that `piece` completes; None when more is to come.

        Raises:
            ChannelClosed: it is no piece, or the message grows past `most` bytes.
        """
        kind = piece[:1]
        whole = kind == _MORE and len(piece) == MAX_PIECE_BYTES
        if not whole and not (kind == _LAST and len(piece) <= MAX_PIECE_BYTES):
            raise ChannelClosed("a malformed piece came through the relay")
        self._size += len(piece) - 1
        if self._size > self.most:
            raise ChannelClosed("a message passed the size limit; the channel was closed")
        self._parts.append(piece[1:])
        if kind == _MORE:
            return None
        wire, self._parts, self._size = b"".join(self._parts), [], 0
        return wire
