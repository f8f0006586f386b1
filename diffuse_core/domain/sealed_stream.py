"""The sealed stream: frames that only the two ends of a channel can read or write.

Frames travel as Noise transport messages, under the keys that the handshake led to.
"""

from __future__ import annotations

from diffuse_core.domain.noise import MAX_MESSAGE_BYTES, TAG_BYTES, CipherState, NoiseError
from diffuse_core.errors import ChannelClosed

MAX_FRAME_BYTES = 4 * 2**20
"""What one frame may carry."""

REKEY_MESSAGES = 2**16
REKEY_S = 3600.0
"""How long after its first use a key is replaced, at the next frame."""

_LENGTH = 2
_KIND = 1
_CHUNK = MAX_MESSAGE_BYTES - TAG_BYTES - _KIND
_OVERHEAD = _LENGTH + _KIND + TAG_BYTES


def sealed_size(frame: int) -> int:
    """What a frame of so many bytes may take on the wire, with a renewal before it."""
    return frame + (max(1, -(-frame // _CHUNK)) + 1) * _OVERHEAD


FAREWELL_BYTES = _OVERHEAD
"""A farewell on the wire, and an empty frame."""

MAX_SEALED_BYTES = sealed_size(MAX_FRAME_BYTES)

_MORE, _LAST, _FAREWELL, _RENEWAL = b"\x00", b"\x01", b"\x02", b"\x03"


class SealedStream:
    """Frames to and from the other end, sealed in order.

    One frame is one wire message: Noise messages with a 2-byte big-endian length before each,
    whose first byte says, encrypted, whether more of the frame follows. Both ends count messages
    and replace the key of a direction after every REKEY_MESSAGES of it. When its key gets old,
    the sender replaces it sooner and says so with a message of its own before the frame, so that
    no clock of the receiver matters.
    """

    def __init__(self, sending: CipherState, receiving: CipherState) -> None:
        self._sending = sending
        self._receiving = receiving
        self._first_use: float | None = None
        self._sent = 0
        self._received = 0
        self._may_send = True
        self._may_receive = True

    def seal(self, frame: bytes, now: float) -> bytes:
        """The wire message of a frame; `now` is a monotonic time in seconds.

        Raises:
            ValueError: the frame passes MAX_FRAME_BYTES.
            ChannelClosed: after `close`.
        """
        if len(frame) > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {len(frame)} bytes passes {MAX_FRAME_BYTES}")
        if not self._may_send:
            raise ChannelClosed("the channel was closed")
        if self._first_use is None:
            self._first_use = now
        if now - self._first_use >= REKEY_S:
            self._first_use = now
            return self._encrypt(_RENEWAL) + self._seal(frame)
        return self._seal(frame)

    def close(self) -> bytes:
        """The wire message that says farewell; nothing can be sealed after it."""
        if not self._may_send:
            raise ChannelClosed("the channel was closed")
        self._may_send = False
        return self._encrypt(_FAREWELL)

    def open(self, wire: bytes) -> bytes | None:
        """The frame of a wire message; None when it is the other end's farewell.

        Raises:
            ChannelClosed: changed, cut, repeated, out of order, too large, or after the end. The
                stream is dead from then on.
        """
        if not self._may_receive:
            raise ChannelClosed("the channel ended")
        # Dead until the whole message proves good.
        self._may_receive = False
        if len(wire) > MAX_SEALED_BYTES:
            raise ChannelClosed("a message passed the size limit; the channel was closed")
        try:
            kind, frame = self._open(wire)
        except NoiseError as error:
            raise ChannelClosed(f"{error}; the channel was closed") from error
        if kind == _FAREWELL:
            return None
        self._may_receive = True
        return frame

    def _seal(self, frame: bytes) -> bytes:
        if len(frame) <= _CHUNK:
            return self._encrypt(_LAST + frame)
        view = memoryview(frame)
        last = (len(frame) - 1) // _CHUNK * _CHUNK
        parts = [
            self._encrypt(b"".join((_LAST if at == last else _MORE, view[at : at + _CHUNK])))
            for at in range(0, len(frame), _CHUNK)
        ]
        return b"".join(parts)

    def _open(self, wire: bytes) -> tuple[bytes, bytes]:
        parts: list[bytes] = []
        kind, at = _MORE, 0
        while kind == _MORE:
            plain, end = self._next(wire, at)
            if plain == _RENEWAL and at == 0:
                plain, end = self._next(wire, end)
            kind = plain[:_KIND]
            # Only whole messages may come before the last: many tiny ones would cost much.
            if kind == _MORE and len(plain) != _KIND + _CHUNK:
                raise NoiseError("a malformed message arrived")
            parts.append(plain[_KIND:])
            at = end
        if at != len(wire) or kind not in (_LAST, _FAREWELL):
            raise NoiseError("a malformed message arrived")
        return kind, parts[0] if len(parts) == 1 else b"".join(parts)

    def _next(self, wire: bytes, at: int) -> tuple[bytes, int]:
        start = at + _LENGTH
        end = start + int.from_bytes(wire[at:start], "big")
        # A length past the end makes a slice that is too short to authenticate.
        return self._decrypt(wire[start:end]), end

    def _encrypt(self, plain: bytes) -> bytes:
        sealed = self._sending.encrypt(plain)
        self._sent += 1
        if self._sent == REKEY_MESSAGES or plain == _RENEWAL:
            self._sent = 0
            self._sending.rekey()
        return len(sealed).to_bytes(_LENGTH, "big") + sealed

    def _decrypt(self, sealed: bytes) -> bytes:
        plain = self._receiving.decrypt(sealed)
        self._received += 1
        if self._received == REKEY_MESSAGES or plain == _RENEWAL:
            self._received = 0
            self._receiving.rekey()
        return plain
