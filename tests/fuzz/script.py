"""Scripts: bytes read as a sequence of steps, so that a target can be a whole conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_STEPS = 64
_HEAD = 3


def steps(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each step's number and argument: a byte, two bytes of length (little-endian), as many.

    Any bytes are a script; a length past the end takes what is left.
    """
    at = 0
    for _ in range(MAX_STEPS):
        if at >= len(data):
            return
        end = at + _HEAD + int.from_bytes(data[at + 1 : at + _HEAD], "little")
        yield data[at], data[at + _HEAD : end]
        at = end


def script(*written: tuple[int, bytes]) -> bytes:
    """The bytes that `steps` reads as `written`."""
    return b"".join(
        bytes([number]) + len(argument).to_bytes(2, "little") + argument
        for number, argument in written
    )
