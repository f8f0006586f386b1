"""Handshakes whose messages are changed on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.channel import HandshakeFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.channel import Handshake


def carry_on(a: Handshake, b: Handshake, index: int, message: bytes) -> None:
    """Deliver `message` as the one of that index (0, 1, 2), and what follows an accepted first."""
    if index == 0:
        a.receive(b.receive(message))
    elif index == 1:
        a.receive(message)
    else:
        b.receive(message)


def refuse_every_flip(pair: Callable[[], tuple[Handshake, Handshake]], index: int) -> None:
    """Whichever bit of a message is flipped, one side refuses it, and the listener opens nothing.

    All bits of the first message, which is partly in clear; every seventh of the others.
    """
    at = 0
    while True:
        a, b = pair()
        messages = [a.start()]
        if index:
            messages.append(b.receive(messages[0]))
        if index == 2:
            messages.append(a.receive(messages[1]))
        changed = bytearray(messages[index])
        if at >= len(changed) * 8:
            break
        changed[at // 8] ^= 1 << at % 8
        with pytest.raises(HandshakeFailed):
            carry_on(a, b, index, bytes(changed))
        assert not b.done
        at += 7 if index else 1
