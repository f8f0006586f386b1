"""Handshake messages whose bytes are changed, cut or continued on their way."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest
from handshake_samples import (
    ALICE,
    BOB,
    credentials,
    pair,
    refuse_every_flip,
    refuse_every_length,
)

from diffuse_core.domain.channel import MAX_HANDSHAKE_BYTES, HandshakeFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.channel import Handshake

KEY = b"k" * 32
PAIRS = {
    "direct": pair,
    "relayed": functools.partial(pair, way="relayed"),
    "keyed": lambda: pair(credentials(ALICE, key=KEY), credentials(BOB, key=KEY)),
    "keyed and relayed": lambda: pair(
        credentials(ALICE, key=KEY), credentials(BOB, key=KEY), way="relayed"
    ),
}


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("kind", ["direct", "relayed", "keyed"])
def test_every_flipped_bit_is_refused(kind: str, index: int) -> None:
    refuse_every_flip(PAIRS[kind], index)


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("make", PAIRS.values(), ids=PAIRS)
def test_every_length_but_the_right_one_is_refused(
    make: Callable[[], tuple[Handshake, Handshake]], index: int
) -> None:
    refuse_every_length(make, index)


def test_oversized_messages_are_refused_unread() -> None:
    b = pair()[1]
    with pytest.raises(HandshakeFailed, match="no place") as caught:
        b.receive(bytes(MAX_HANDSHAKE_BYTES + 1))
    assert caught.value.reason == "malformed"


def test_a_failed_handshake_stays_failed() -> None:
    a, b = pair()
    first = a.start()
    with pytest.raises(HandshakeFailed):
        b.receive(first[:-1])
    with pytest.raises(HandshakeFailed, match="no place"):
        b.receive(first)
    assert not b.done
