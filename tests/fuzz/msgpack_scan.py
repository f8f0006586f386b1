"""Where the values of some msgpack are, without believing that it is any.

The format is that of https://github.com/msgpack/msgpack/blob/master/spec.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

MAX_TOKENS = 96

# First byte → bytes of the length, bytes of the value beside it.
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_FIXED |= {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
_NESTED = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}

HOSTILE = (
    b"\xc0",  # nothing
    b"\xc1",  # never used
    b"\xc2",
    b"\xc3",
    b"\x00",
    b"\xff",  # -1
    b"\xcc\xff",
    b"\xcd\xff\xff",
    b"\xce\xff\xff\xff\xff",
    b"\xcf" + b"\xff" * 8,
    b"\xcf\x7f" + b"\xff" * 7,
    b"\xcf\x80" + b"\x00" * 7,
    b"\xd3\x80" + b"\x00" * 7,
    b"\xd2\x80\x00\x00\x00",
    b"\xcb" + struct.pack(">d", float("nan")),
    b"\xcb" + struct.pack(">d", float("inf")),
    b"\xcb" + struct.pack(">d", -0.0),
    b"\xca" + struct.pack(">f", 1e38),
    b"\xdd\xff\xff\xff\xff",
    b"\xdc\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xdd\x00\x01\x00\x00",
    b"\x90",
    b"\x80",
    b"\xa0",
    b"\xc4\x00",
    b"\xa1\xff",  # no UTF-8
    b"\xa3\xed\xa0\x80",  # half a surrogate pair
    b"\xa4\xf0\x9f\xa6\x80",
    b"\xa1\x1b",  # what terminals obey
    b"\xc7\x0c\xff" + b"\xff" * 12,  # a point in time
    b"\xd6\xff\xff\xff\xff\xff",
    b"\xd4\x2a\x00",  # an unknown extension
)
"""Values at the edges of their kinds, and of kinds that do not belong."""


@dataclass(frozen=True)
class Token:
    """One value: where it starts, where its contents start and end."""

    start: int
    head: int
    end: int
    first: int

    def other_head(self, rng: random.Random) -> bytes:
        """The same kind with another value or length, perhaps a lie."""
        first = self.first
        if first in _FIXED:
            return bytes([first]) + rng.choice((b"\x00", b"\xff", b"\x7f", b"\x01")) * (
                self.head - self.start - 1
            )
        if first in _SIZED or first in _NESTED:
            width = _SIZED.get(first) or _NESTED[first]
            return (
                bytes([first])
                + rng.choice((0, 1, 33, 255, 2 ** (8 * width) - 1)).to_bytes(
                    width, "big", signed=False
                )
                if width > 1
                else bytes([first, rng.randrange(256)])
            )
        return bytes([(first + rng.choice((1, -1, 2, 8))) % 256])


def tokens(data: bytes) -> list[Token]:
    """The values of `data`, outer ones before those inside, up to MAX_TOKENS.

    Containers have only their first bytes as contents. Ends where `data` does.
    """
    found: list[Token] = []
    at = 0
    while at < len(data) and len(found) < MAX_TOKENS:
        first = data[at]
        head, end = at + 1, at + 1
        if 0xA0 <= first <= 0xBF:
            end = head + first - 0xA0
        elif first in _FIXED:
            head = end = at + 1 + _FIXED[first]
        elif first in _NESTED:
            head = end = at + 1 + _NESTED[first]
        elif first in _SIZED:
            head = at + 1 + _SIZED[first]
            end = head + int.from_bytes(data[at + 1 : head], "big")
        if end > len(data):
            break
        found.append(Token(at, head, end, first))
        at = end
    return found
