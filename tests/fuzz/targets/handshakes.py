"""Handshakes: messages of no sense, and messages that Noise finds right around any payload.

Random bytes never pass an authentication tag. So most samples are payloads that the target seals
as one who follows the protocol would, with the network key or without.
"""

from __future__ import annotations

import copy
import itertools
from functools import cache
from typing import TYPE_CHECKING, get_args

import msgspec

from diffuse_core.domain.channel import (
    MAX_HANDSHAKE_BYTES,
    Credentials,
    Handshake,
    HandshakeFailed,
    Way,
)
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.noise import KEY_BYTES, XX

if TYPE_CHECKING:
    from diffuse_core.domain.channel import Role

KEYED = 0x80
SEALED = 0x40
"""The rest of the input is what the other side seals, instead of what it sends."""
CLEAR = 0x20
"""With SEALED, of a HELLO under a key: the rest stands in clear, around a right greeting."""
RELAYED = 0x10
"""The channel goes through a sentinel."""
HELLO, ANSWER, PROOF = 0, 1, 2
"""Which of the three messages is fuzzed: the receiver awaits it."""

_SECRET = bytes([9]) * 32
_WAYS: tuple[Way, ...] = get_args(Way)


@cache
def _credentials(number: int, *, keyed: bool) -> Credentials:
    """Of the receiver (1) or the other side (2)."""
    seed, static = bytes([number]) * 32, bytes([number + 10]) * 32
    return Credentials(Identity(seed), "fuzz", static, key=_SECRET if keyed else None)


@cache
def _met(step: int, *, keyed: bool, way: Way) -> tuple[Handshake, XX]:
    """The receiver before message `step`, and the Noise state of the one that sends it."""
    own, other = _credentials(1, keyed=keyed), _credentials(2, keyed=keyed)
    role: Role = "dialler" if step == ANSWER else "listener"
    receiver = Handshake(own, role, bytes([21]) * 32, way=way)
    sender = XX(
        initiator=step != ANSWER,
        prologue=other.prologues[way],
        static=other.static,
        ephemeral=bytes([22]) * 32,
        psk=other.key,
    )
    if step == ANSWER:
        sender.read(_noise_part(receiver.start() or b"", keyed=keyed))
    elif step == PROOF:
        sender.read(receiver.receive(_greeting(sender, other.hello, keyed=keyed)) or b"")
    return receiver, sender


def _noise_part(first: bytes, *, keyed: bool) -> bytes:
    """A first message as Noise reads it, without the greeting in clear beside it."""
    if not keyed:
        return first
    sealed = msgspec.msgpack.decode(first[KEY_BYTES:])[3]
    assert isinstance(sealed, bytes)
    return first[:KEY_BYTES] + sealed


def _greeting(sender: XX, hello: bytes, *, keyed: bool, clear: bytes | None = None) -> bytes:
    """The first message of the other side, that says `hello` to Noise and `clear` in clear.

    `clear` is three values in msgpack; what Noise sealed follows them.
    """
    message = sender.write(hello)
    if not keyed:
        return message
    if clear is None:
        clear = _three(hello)
    return b"".join(
        (message[:KEY_BYTES], b"\x94", clear, msgspec.msgpack.encode(message[KEY_BYTES:]))
    )


def _sent(sender: XX, step: int, mode: int, payload: bytes) -> bytes:
    keyed, other = bool(mode & KEYED), _credentials(2, keyed=bool(mode & KEYED))
    if step != HELLO or not keyed:
        return sender.write(payload)
    if mode & CLEAR:
        return _greeting(sender, other.hello, keyed=True, clear=payload)
    clear = _three(other.hello)
    return _greeting(sender, payload, keyed=True, clear=clear)


def target(data: bytes) -> str:
    """Whoever gets in is who it proves to be; whoever does not never gets in later."""
    mode, rest = data[:1] or b"\x00", data[1:]
    step = (mode[0] & 0x0F) % 3
    way: Way = "relayed" if mode[0] & RELAYED else "direct"
    receiver, sender = _met(step, keyed=bool(mode[0] & KEYED), way=way)
    own = _credentials(1, keyed=bool(mode[0] & KEYED))
    receiver = copy.deepcopy(receiver, {id(own): own})
    message = rest
    if mode[0] & SEALED:
        message = _sent(copy.deepcopy(sender), step, mode[0], rest)
    kind = "sealed" if mode[0] & SEALED else "raw"
    try:
        answer = receiver.receive(message)
    except HandshakeFailed as refusal:
        assert not receiver.done
        _stays_out(receiver, message)
        return f"{kind} {step}: {refusal.reason}"
    assert len(message) <= MAX_HANDSHAKE_BYTES
    assert answer is None or len(answer) <= MAX_HANDSHAKE_BYTES
    assert receiver.done == (step != HELLO)
    if receiver.done:
        assert receiver.remote == _credentials(2, keyed=False).node
    return f"{kind} {step}: let in"


def _stays_out(receiver: Handshake, message: bytes) -> None:
    try:
        receiver.receive(message)
    except HandshakeFailed:
        return
    raise AssertionError("a handshake that failed goes on")


def samples() -> dict[str, bytes]:
    """For each message and way, with and without a key: the right one, the payload, variations."""
    found = {}
    for keyed, way in itertools.product((False, True), _WAYS):
        own, other = _credentials(1, keyed=keyed), _credentials(2, keyed=keyed)
        bits = keyed * KEYED | (way == "relayed") * RELAYED
        begin = f"{way}{'-keyed' * keyed}"
        proofs = {ANSWER: other.proof("listener", way), PROOF: other.proof("dialler", way)}
        for step, payload in {HELLO: other.hello, **proofs}.items():
            _, sender = _met(step, keyed=keyed, way=way)
            wire = _sent(copy.deepcopy(sender), step, bits, payload)
            newer = bytes([payload[0] + 1]) + payload[1:] + b"\xa5later"
            found[f"{begin}-{step}-wire"] = bytes([bits | step]) + wire
            found[f"{begin}-{step}-payload"] = bytes([bits | step | SEALED]) + payload
            found[f"{begin}-{step}-newer"] = bytes([bits | step | SEALED]) + newer
        reflected = own.proof("listener", way)
        found[f"{begin}-reflected"] = bytes([bits | PROOF | SEALED]) + reflected
    # As deep as it gets in so few bytes, in a field that is not known here.
    deep = b"\x95" + other.hello[1:] + b"\x91" * 420 + b"\xc0"
    found["deep"] = bytes([HELLO]) + bytes([7]) * KEY_BYTES + deep
    found["clear"] = bytes([HELLO | KEYED | SEALED | CLEAR]) + _three(other.hello)
    return found


def _three(hello: bytes) -> bytes:
    return msgspec.msgpack.encode(msgspec.msgpack.decode(hello)[:3])[1:]
