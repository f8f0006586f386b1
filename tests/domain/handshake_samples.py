"""Handshakes between Alice and Bob, and what happens to messages on their way."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.channel import Credentials, Handshake, HandshakeFailed
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.noise import XX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from diffuse_core.domain.channel import Way
    from diffuse_core.domain.sealed_stream import SealedStream

ALICE, BOB, EVE = (Identity(bytes([i]) * 32) for i in (1, 2, 3))
WAYS: tuple[Way, ...] = ("direct", "relayed")


def credentials(
    identity: Identity, network: str = "net", major: int = 1, key: bytes | None = None
) -> Credentials:
    static = bytes(reversed(identity.seed[:-1])) + b"\x50"
    return Credentials(identity, network, static, major, key)


def pair(
    dialler: Credentials | None = None,
    listener: Credentials | None = None,
    expected: bytes = b"",
    way: Way = "direct",
) -> tuple[Handshake, Handshake]:
    return (
        Handshake(dialler or credentials(ALICE), "dialler", b"\x11" * 32, expected or None, way),
        Handshake(listener or credentials(BOB), "listener", b"\x22" * 32, None, way),
    )


def finish(a: Handshake, b: Handshake) -> tuple[SealedStream, SealedStream]:
    """Run a handshake to its end; both streams."""
    second = b.receive(a.start())
    third = a.receive(second)
    assert b.receive(third) is None
    return a.session(), b.session()


def forged(proof: bytes, identity: Identity = EVE) -> Credentials:
    """Credentials that show `proof` in every role."""
    made = credentials(identity)
    made._proofs = dict.fromkeys(made._proofs, proof)
    return made


def refusal(of: Credentials, way: Way = "direct") -> str:
    """Why a listener refuses a dialler with these credentials."""
    a, b = pair(of, way=way)
    third = a.receive(b.receive(a.start()))
    with pytest.raises(HandshakeFailed) as caught:
        b.receive(third)
    assert not b.done
    return caught.value.reason


class Forger(XX):
    """Sends the `shown` public keys, properly sealed, whatever its own are."""

    shown: dict[str, bytes]

    def _write_key(self, name: str) -> bytes:
        key = self.shown.get(name)
        if key is None:
            return super()._write_key(name)
        if name == "s":
            return self._symmetric.encrypt_and_hash(key)
        self._mix_ephemeral(key)
        return key


def show(handshake: Handshake, **keys: bytes) -> None:
    """Let a handshake that has not begun show other public keys, `s` or `e`, than its own."""
    handshake._noise.__class__ = Forger
    handshake._noise.shown = keys


def on_the_way(
    pair: Callable[[], tuple[Handshake, Handshake]], index: int
) -> Iterator[tuple[Handshake, Handshake, bytes]]:
    """Both sides, again and again, when the message of that index (0, 1, 2) is on its way."""
    a, b = pair()
    message = a.start()
    if index:
        message = b.receive(message)
    if index == 2:
        message = a.receive(message)
    while True:
        yield (*copy.deepcopy((a, b)), message)


def carry_on(a: Handshake, b: Handshake, index: int, message: bytes) -> None:
    """Deliver `message` as the one of that index (0, 1, 2), and what follows an accepted first."""
    if index == 0:
        a.receive(b.receive(message))
    elif index == 1:
        a.receive(message)
    else:
        b.receive(message)


def refuse_every_flip(pair: Callable[[], tuple[Handshake, Handshake]], index: int) -> None:
    """Whichever bit of a message is flipped, one side refuses it, and nothing is opened."""
    size = len(next(on_the_way(pair, index))[2])
    for at, (a, b, message) in zip(range(size * 8), on_the_way(pair, index), strict=False):
        changed = bytearray(message)
        changed[at // 8] ^= 1 << at % 8
        refuse(a, b, index, bytes(changed))


def refuse_every_length(pair: Callable[[], tuple[Handshake, Handshake]], index: int) -> None:
    """A message that is cut, at whichever length, or has more behind it is refused likewise."""
    size = len(next(on_the_way(pair, index))[2])
    for length, (a, b, message) in zip(range(size), on_the_way(pair, index), strict=False):
        refuse(a, b, index, message[:length])
    for more, (a, b, message) in zip((1, 50, size), on_the_way(pair, index), strict=False):
        refuse(a, b, index, (message + message)[: size + more])


def refuse(a: Handshake, b: Handshake, index: int, message: bytes) -> None:
    """One side refuses the message and gives nothing, then and later."""
    with pytest.raises(HandshakeFailed) as caught:
        carry_on(a, b, index, message)
    assert caught.value.reason
    assert not b.done
    assert index == 2 or not a.done
    for side in (a, b):
        if not side.done:
            with pytest.raises(HandshakeFailed):
                side.receive(message)
