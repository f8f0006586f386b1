"""What a token costs on the wire: 64 bytes a hop beside the hidden state, and to the client.

Everything is counted: the message, its length, the seal, the header and the mask of the frame.
"""

from __future__ import annotations

import pytest

from diffuse_core.adapters.websocket_transport import short_frames
from diffuse_core.domain.codec import encode
from diffuse_core.domain.messages import MARK_BYTES, ForwardHidden, ForwardTokens, TokensDrawn
from diffuse_core.domain.noise import CipherState
from diffuse_core.domain.sealed_stream import SealedStream
from diffuse_core.domain.waterfall import STAMP_BYTES
from diffuse_core.domain.wire import NAME_BYTES

BUDGET = 64
SESSION = b"s" * 16
NAME = b"n" * NAME_BYTES
"""What Stages call it among each other."""
FAR = 2**16 - 1
"""A position as far as most models' contexts reach."""
FARTHEST = 2**20 - 1
LARGE = 151_643
"""A token of a large vocabulary."""
HIDDEN = bytes(2 * 576)


def on_the_wire(message: ForwardHidden | ForwardTokens | TokensDrawn, body: bytes = b"") -> int:
    """Bytes beside the body, from the end that dialled: its frames are masked."""
    stream = SealedStream(CipherState(b"k" * 32), CipherState(b"j" * 32))
    wire = stream.seal(encode(message, body), 0.0)
    return len(short_frames.write(wire, masked=True)) - len(body)


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (ForwardHidden(NAME, FAR), HIDDEN),
        (ForwardHidden(NAME, FAR, epoch=8), HIDDEN),
        (ForwardTokens(NAME, FAR, (LARGE,)), b""),
        (ForwardTokens(NAME, FARTHEST, (LARGE,), epoch=8), b""),
        (TokensDrawn(SESSION, FAR, (LARGE,)), b""),
    ],
    ids=["hop", "hop after failovers", "ring", "ring after failovers", "client"],
)
def test_a_token_costs_no_more_than_it_may(message: ForwardHidden, body: bytes) -> None:
    assert on_the_wire(message, body) <= BUDGET


def test_times_that_were_asked_for_cost_what_they_say() -> None:
    """They are the only thing that a hop may carry beyond the budget."""
    marks = bytes(STAMP_BYTES + MARK_BYTES)
    timed = on_the_wire(ForwardHidden(NAME, FAR, marks=marks), HIDDEN)
    name_and_length = 4
    assert timed <= BUDGET + len(marks) + name_and_length
