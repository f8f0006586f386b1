"""Sealed streams: bytes on the wire, and what one who has the keys may seal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.noise import MAX_MESSAGE_BYTES, TAG_BYTES, CipherState
from diffuse_core.domain.sealed_stream import MAX_FRAME_BYTES, SealedStream
from diffuse_core.errors import ChannelClosed
from tests.fuzz.script import script, steps

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPT = True
_THERE, _BACK = bytes([1]) * 32, bytes([2]) * 32
_FULL = MAX_MESSAGE_BYTES - TAG_BYTES - 1
MORE, LAST, FAREWELL, RENEWAL = 0, 1, 2, 3
WIRE = 0x80
"""A step of this number is wire as it stands; of others it is the kind that is sealed."""
FILL = 0x40
"""Added to a kind: its argument is repeated up to a whole message."""
LIE = 0x20
"""Added to a kind: the length before it is one too few."""
END = 0x10
"""Added to a kind: the wire message ends after it."""


def target(data: bytes) -> str:
    """A stream opens what was sealed as it must be, in order, and nothing else."""
    receiver = SealedStream(CipherState(_BACK), CipherState(_THERE))
    sender = CipherState(_THERE)
    outcome = "nothing"
    wire, parts = b"", []
    raw, honest = False, True
    for number, argument in steps(data):
        if number & WIRE:
            wire += argument
            raw = True
        else:
            kind = number & 0x0F
            text = _filled(argument) if number & FILL else argument[:_FULL]
            sealed = sender.encrypt(bytes([kind]) + text)
            if (kind, text) == (RENEWAL, b""):
                sender.rekey()
            lie = bool(number & LIE)
            wire += (len(sealed) - lie).to_bytes(2, "big") + sealed
            parts.append((kind, text))
            honest = honest and not lie
        if not number & WIRE and not number & END:
            continue
        outcome = _deliver_raw(receiver, wire) if raw else _deliver(receiver, wire, honest, parts)
        wire, parts = b"", []
        if outcome in ("refused", "farewell"):
            _is_dead(receiver)
            return outcome
    return outcome


def _filled(argument: bytes) -> bytes:
    return (argument * (_FULL // len(argument) + 1))[:_FULL] if argument else bytes(_FULL)


def _deliver_raw(receiver: SealedStream, wire: bytes) -> str:
    """Only what a sample brought along can be genuine, and that is."""
    try:
        return "farewell" if receiver.open(wire) is None else "replayed"
    except ChannelClosed:
        return "refused"


def _deliver(
    receiver: SealedStream, wire: bytes, honest: bool, parts: Sequence[tuple[int, bytes]]
) -> str:
    if parts[:1] == [(RENEWAL, b"")]:
        parts = parts[1:]
    whole = all(kind == MORE and len(text) == _FULL for kind, text in parts[:-1])
    sound = honest and whole and bool(parts) and parts[-1][0] in (LAST, FAREWELL)
    try:
        frame = receiver.open(wire)
    except ChannelClosed:
        assert not sound
        return "refused"
    assert sound
    if frame is None:
        assert parts[-1][0] == FAREWELL
        return "farewell"
    assert frame == b"".join(text for _, text in parts)
    assert len(frame) <= MAX_FRAME_BYTES + _FULL
    return "frame" if len(parts) == 1 else "long frame"


def _is_dead(receiver: SealedStream) -> None:
    try:
        receiver.open(b"")
    except ChannelClosed:
        return
    raise AssertionError("a stream that ended goes on")


def samples() -> dict[str, bytes]:
    """Frames of one and of several messages, a farewell, and bytes of no sense."""
    stream = SealedStream(CipherState(_THERE), CipherState(_BACK))
    return {
        "frame": script((LAST | END, b"hello")),
        "frames": script(*((LAST | END, bytes([number]) * number) for number in range(4))),
        "long": script((MORE | FILL, b"ab"), (MORE | FILL, b""), (LAST | END, b"c")),
        "farewell": script((LAST | END, b"x"), (FAREWELL | END, b"")),
        "late-farewell": script((MORE | FILL, b"ab"), (FAREWELL | END, b"")),
        "many-tiny": script(*((MORE, b"x") for _ in range(5)), (LAST | END, b"y")),
        "renewal": script(
            (LAST | END, b"x"), (RENEWAL, b""), (LAST | END, b"y"), (LAST | END, b"z")
        ),
        "renewals": script((RENEWAL, b""), (RENEWAL, b""), (LAST | END, b"y")),
        "late-renewal": script((MORE | FILL, b"ab"), (RENEWAL, b""), (LAST | END, b"y")),
        "renewed-farewell": script((RENEWAL, b""), (FAREWELL | END, b"")),
        "lie": script((LAST | LIE | END, b"x")),
        "sealed": script((WIRE, stream.seal(b"hello", 0.0))),
        "noise": script((WIRE, bytes(range(64)))),
    }
