"""The secure channel: who is at the other end, and frames that only they can read or write.

A handshake is three Noise messages. The first carries, in clear, which protocol and network the
dialler speaks, so that a mismatch can be named; the prologue binds the same facts. The second and
third carry, encrypted, each side's node id and a signature that binds it to the static key the
handshake proves. Frames follow as Noise transport messages.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal, TypeVar

import msgspec

from diffuse_core.domain.identity import (
    Identity,
    NodeId,
    Signature,
    WireNodeId,
    short_text,
    verify,
)
from diffuse_core.domain.messages import PROTOCOL_MAJOR, PROTOCOL_MINOR
from diffuse_core.domain.noise import (
    MAX_MESSAGE_BYTES,
    TAG_BYTES,
    XX,
    CipherState,
    NoiseError,
    public_key,
)
from diffuse_core.errors import ChannelClosed

MAX_FRAME_BYTES = 4 * 2**20
"""What one frame may carry."""

MAX_HANDSHAKE_BYTES = 512
MAX_NETWORK_BYTES = 64
REKEY_MESSAGES = 2**16

_LENGTH = 2
_KIND = 1
_CHUNK = MAX_MESSAGE_BYTES - TAG_BYTES - _KIND
_OVERHEAD = _LENGTH + _KIND + TAG_BYTES

MAX_SEALED_BYTES = MAX_FRAME_BYTES + -(-MAX_FRAME_BYTES // _CHUNK) * _OVERHEAD
"""What a sealed frame may take on the wire."""

Role = Literal["dialler", "listener"]
FailureReason = Literal["malformed", "network", "version", "identity", "own", "unexpected"]

_MORE, _LAST, _FAREWELL = b"\x00", b"\x01", b"\x02"

_Version = Annotated[int, msgspec.Meta(ge=0, le=2**16 - 1)]
_NetworkTag = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


class HandshakeFailed(ChannelClosed):
    """No channel came about; `reason` is the word for programs."""

    def __init__(self, message: str, reason: FailureReason) -> None:
        super().__init__(message)
        self.reason: FailureReason = reason


class _Hello(msgspec.Struct, frozen=True, array_like=True):
    """Payload of the first message, in clear; later minor versions may append to it."""

    major: _Version
    minor: _Version
    network: _NetworkTag


class _Proof(msgspec.Struct, frozen=True, array_like=True):
    """Payload of the second and third message, encrypted: who holds the static key."""

    node: WireNodeId
    signature: Signature
    major: _Version
    minor: _Version


_encode = msgspec.msgpack.Encoder().encode
_hello_decoder = msgspec.msgpack.Decoder(_Hello)
_proof_decoder = msgspec.msgpack.Decoder(_Proof)
_Payload = TypeVar("_Payload", _Hello, _Proof)


_ROLES: tuple[Role, ...] = ("dialler", "listener")


class Credentials:
    """What a node shows in every handshake of one process on one network.

    `static` is a 32-byte X25519 secret, fresh per process. It is signed once for each role, so
    that a proof cannot be reflected to the side it came from.

    Raises:
        ValueError: the network's name is empty or too long, or `static` has not 32 bytes.
    """

    def __init__(
        self, identity: Identity, network: str, static: bytes, major: int = PROTOCOL_MAJOR
    ) -> None:
        if not 0 < len(network.encode()) <= MAX_NETWORK_BYTES:
            raise ValueError(f"a network's name has 1 to {MAX_NETWORK_BYTES} bytes")
        self.node = identity.node
        self.network = network
        self.major = major
        self.static = static
        self.prologue = b"diffuse" + major.to_bytes(2, "big") + network.encode()
        self.tag = hashlib.sha256(b"diffuse/network\x00" + network.encode()).digest()[:16]
        self._identity = identity
        self._public = public_key(static)
        self.hello = _encode(_Hello(major, PROTOCOL_MINOR, self.tag))
        self._proofs = {role: self._prove(role) for role in _ROLES}

    def proof(self, role: Role) -> bytes:
        """The payload that proves this node in `role`."""
        return self._proofs[role]

    def _prove(self, role: Role) -> bytes:
        signature = self._identity.sign("channel", _statement(role, self.prologue, self._public))
        return _encode(_Proof(self.node, signature, self.major, PROTOCOL_MINOR))


class Handshake:
    """One side of opening a channel: feed it what arrives, send what it returns.

    `ephemeral` is a 32-byte X25519 secret made for this handshake alone. `expected` is the id a
    dialler wants to reach, when it knows. After any failure the handshake stays failed.
    """

    def __init__(
        self,
        credentials: Credentials,
        role: Role,
        ephemeral: bytes,
        expected: NodeId | None = None,
    ) -> None:
        self._own = credentials
        self._role: Role = role
        self._expected = expected
        self._noise = XX(
            initiator=role == "dialler",
            prologue=credentials.prologue,
            static=credentials.static,
            ephemeral=ephemeral,
        )
        self._awaits: Literal["hello", "proof", "nothing"] = "proof"
        if role == "listener":
            self._awaits = "hello"
        self._remote: NodeId | None = None

    @property
    def done(self) -> bool:
        """Whether the other side is proven and nothing more is to be received."""
        return self._remote is not None

    @property
    def remote(self) -> NodeId:
        """The proven node id of the other end. Raises ChannelClosed before that."""
        if self._remote is None:
            raise ChannelClosed("the other end is not proven")
        return self._remote

    def start(self) -> bytes | None:
        """The message to send first; None for a listener, who waits."""
        return self._noise.write(self._own.hello) if self._role == "dialler" else None

    def receive(self, message: bytes) -> bytes | None:
        """Take the other side's message; the answer to send, if one is due.

        Raises:
            HandshakeFailed: the other side is not who or what it must be; close the connection.
        """
        awaited, self._awaits = self._awaits, "nothing"
        if awaited == "nothing" or len(message) > MAX_HANDSHAKE_BYTES:
            raise HandshakeFailed("a message came that has no place in a handshake", "malformed")
        try:
            payload = self._noise.read(message)
            if awaited == "hello":
                return self._greet(_decode(_hello_decoder, payload))
            remote = self._check(_decode(_proof_decoder, payload))
            answer = None
            if self._role == "dialler":
                answer = self._noise.write(self._own.proof("dialler"))
        except NoiseError as error:
            raise HandshakeFailed(f"the handshake failed: {error}", "malformed") from error
        self._remote = remote
        return answer

    def session(self) -> SealedStream:
        """The stream of frames; to be taken once, when done."""
        if self._remote is None:
            raise ChannelClosed("the other end is not proven")
        return SealedStream(*self._noise.split())

    def _greet(self, hello: _Hello) -> bytes:
        self._same_major(hello.major)
        if hello.network != self._own.tag:
            raise HandshakeFailed(
                f"the other node is not on network {self._own.network!r}; "
                "give both the same --network",
                "network",
            )
        self._awaits = "proof"
        return self._noise.write(self._own.proof("listener"))

    def _same_major(self, major: int) -> None:
        if major != self._own.major:
            raise HandshakeFailed(
                f"the other node speaks protocol {major}, this one {self._own.major}; "
                "update the older one",
                "version",
            )

    def _check(self, proof: _Proof) -> NodeId:
        other: Role = "listener" if self._role == "dialler" else "dialler"
        statement = _statement(other, self._own.prologue, self._noise.remote_static)
        if not verify(proof.node, "channel", statement, proof.signature):
            raise HandshakeFailed("the other node's identity is not proven", "identity")
        self._same_major(proof.major)
        node = NodeId(proof.node)
        if node == self._own.node:
            raise HandshakeFailed("the other end is this node itself", "own")
        if self._expected is not None and node != self._expected:
            raise HandshakeFailed(
                f"node {short_text(node)} answered, not {short_text(self._expected)} as expected",
                "unexpected",
            )
        return node


class SealedStream:
    """Frames to and from the other end, sealed in order.

    One frame is one wire message: Noise messages with a 2-byte big-endian length before each,
    whose first byte says, encrypted, whether more of the frame follows. Both ends count messages
    and replace the key of a direction after every REKEY_MESSAGES of it.
    """

    def __init__(self, sending: CipherState, receiving: CipherState) -> None:
        self._sending = sending
        self._receiving = receiving
        self._sent = 0
        self._received = 0
        self._may_send = True
        self._may_receive = True

    def seal(self, frame: bytes) -> bytes:
        """The wire message of a frame.

        Raises:
            ValueError: the frame passes MAX_FRAME_BYTES.
            ChannelClosed: after `close`.
        """
        if len(frame) > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {len(frame)} bytes passes {MAX_FRAME_BYTES}")
        if not self._may_send:
            raise ChannelClosed("the channel was closed")
        if len(frame) <= _CHUNK:
            return self._encrypt(_LAST + frame)
        view = memoryview(frame)
        last = (len(frame) - 1) // _CHUNK * _CHUNK
        parts = [
            self._encrypt(b"".join((_LAST if at == last else _MORE, view[at : at + _CHUNK])))
            for at in range(0, len(frame), _CHUNK)
        ]
        return b"".join(parts)

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

    def _open(self, wire: bytes) -> tuple[bytes, bytes]:
        parts: list[bytes] = []
        kind, at = _MORE, 0
        while kind == _MORE:
            end = at + _LENGTH + int.from_bytes(wire[at : at + _LENGTH], "big")
            # A length past the end makes a slice that is too short to authenticate.
            sealed = wire[at + _LENGTH : end]
            plain = self._decrypt(sealed)
            kind, at = plain[:_KIND], end
            # Only whole messages may come before the last: many tiny ones would cost much.
            if kind == _MORE and len(sealed) != MAX_MESSAGE_BYTES:
                raise NoiseError("a malformed message arrived")
            parts.append(plain[_KIND:])
        if at != len(wire) or kind not in (_LAST, _FAREWELL):
            raise NoiseError("a malformed message arrived")
        return kind, parts[0] if len(parts) == 1 else b"".join(parts)

    def _encrypt(self, plain: bytes) -> bytes:
        sealed = self._sending.encrypt(plain)
        self._sent += 1
        if self._sent % REKEY_MESSAGES == 0:
            self._sending.rekey()
        return len(sealed).to_bytes(_LENGTH, "big") + sealed

    def _decrypt(self, sealed: bytes) -> bytes:
        plain = self._receiving.decrypt(sealed)
        self._received += 1
        if self._received % REKEY_MESSAGES == 0:
            self._receiving.rekey()
        return plain


def _statement(role: Role, prologue: bytes, static: bytes) -> bytes:
    # The role has one byte and the key a fixed length: nothing can be read two ways.
    return (b"\x00" if role == "dialler" else b"\x01") + static + prologue


def _decode(decoder: msgspec.msgpack.Decoder[_Payload], payload: bytes) -> _Payload:
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, ValueError) as error:
        raise NoiseError("a payload is malformed") from error
