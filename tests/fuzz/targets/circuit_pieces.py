"""Pieces of a relayed channel, as a sentinel that lies may send them."""

from __future__ import annotations

import hashlib

from diffuse_core.domain.circuit_pieces import MAX_PIECE_BYTES, Joiner, cut
from diffuse_core.domain.sealed_stream import MAX_SEALED_BYTES
from diffuse_core.errors import ChannelClosed
from tests.fuzz.script import script, steps

SCRIPT = True
WHOLE = 0x80
"""Added to a kind: the argument is repeated up to a whole piece."""
MANY = 0x40
"""Added to a kind: the same piece comes so often that it passes what a message may take."""
CUT = 0x20
"""The argument is cut as a sender does it, repeated 2 ** the rest of the number times."""
MAX_CUT_BYTES = 5 * MAX_PIECE_BYTES
_OFTEN = MAX_SEALED_BYTES // MAX_PIECE_BYTES + 2


def target(data: bytes) -> str:
    """What was cut is joined again; nothing is kept beyond a message's limit."""
    joiner = Joiner()
    held, size = hashlib.sha256(), 0
    outcome = "nothing"
    for number, argument in steps(data):
        for piece in _pieces(number, argument):
            try:
                wire = joiner.take(piece)
            except ChannelClosed:
                return "refused"
            held.update(piece[1:])
            size += len(piece) - 1
            outcome = "more"
            assert size <= MAX_SEALED_BYTES
            if wire is not None:
                assert hashlib.sha256(wire).digest() == held.digest()
                held, size, outcome = hashlib.sha256(), 0, "message"
    return outcome


def _pieces(number: int, argument: bytes) -> list[bytes]:
    if number & WHOLE:
        text = (argument * (MAX_PIECE_BYTES // max(1, len(argument)) + 1))[: MAX_PIECE_BYTES - 1]
        text = text or bytes(MAX_PIECE_BYTES - 1)
        return [bytes([number & 0x0F]) + text] * (_OFTEN if number & MANY else 1)
    if number & CUT:
        wire = argument * min(2 ** (number & 0x0F), MAX_CUT_BYTES // max(1, len(argument)))
        pieces = list(cut(wire))
        assert b"".join(piece[1:] for piece in pieces) == wire
        return pieces
    return [argument]


def samples() -> dict[str, bytes]:
    """One piece, several, a message that is too large, and none at all."""
    return {
        "one": script((0, b"\x01hello")),
        "two": script((WHOLE, b"ab"), (0, b"\x01rest")),
        "cut": script((CUT | 3, b"0123456789" * 40), (CUT | 9, b"0123456789" * 40)),
        "endless": script((WHOLE | MANY, b"x")),
        "short": script((0, b"\x00abc")),
        "empty": script((0, b"")),
    }
