"""The opening of a secure channel: who is at the other end, and on which network.

A handshake is three Noise messages. The first carries, in clear, which protocol and network the
dialler speaks, so that a mismatch can be named; the prologue binds the same facts. The second and
third carry, encrypted, each side's node id and a signature that binds it to the static key the
handshake proves. Frames follow, in a sealed stream.

A channel through a Sentinel has a prologue of its own, so that a handshake or a proof made for a
direct channel is worth nothing in a relayed one, nor the other way round.

On a network with a key the handshake is XXpsk2: nobody without the key learns an id or gets a
signature. There the greeting goes twice in the first message, once in clear for those who have
no key, and once as Noise seals it.
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
from diffuse_core.domain.noise import KEY_BYTES, XX, NoiseError, SecretError, public_key
from diffuse_core.domain.sealed_stream import SealedStream
from diffuse_core.errors import ChannelClosed

MAX_HANDSHAKE_BYTES = 512
MAX_NETWORK_BYTES = 64

Role = Literal["dialler", "listener"]
Way = Literal["direct", "relayed"]
"""Whether the two ends share a connection, or a Sentinel carries the bytes."""
FailureReason = Literal[
    "malformed", "network", "version", "keyed", "keyless", "key", "identity", "own", "unexpected"
]
"""Of which keyed says that only this side has a network key, keyless that only the other has
one, and key that they differ."""

_Version = Annotated[int, msgspec.Meta(ge=0, le=2**16 - 1)]
_NetworkTag = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


class HandshakeFailed(ChannelClosed):
    """No channel came about; `reason` is the word for programs.

    `answered` is the node that was there, proven, where another one was expected.
    """

    def __init__(
        self, message: str, reason: FailureReason, answered: NodeId | None = None
    ) -> None:
        super().__init__(message)
        self.reason: FailureReason = reason
        self.answered = answered


class _Hello(msgspec.Struct, frozen=True, array_like=True):
    """Payload of the first message, in clear; later minor versions may append to it.

    `sealed` is what Noise made of this greeting under a network key, empty without one.
    """

    major: _Version
    minor: _Version
    network: _NetworkTag
    sealed: Annotated[bytes, msgspec.Meta(max_length=128)] = b""


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
# Of equal length, so that no prologue can be read as one of the other way.
_WAYS: dict[Way, bytes] = {"direct": b"diffuse", "relayed": b"relayed"}


class Credentials:
    """What a node shows in every handshake of one process on one network.

    `static` is a 32-byte X25519 secret, fresh per process. It is signed once for each role and
    way, so that a proof cannot be reflected to the side it came from, nor carried from a direct
    channel into a relayed one. `key` is that of a private network
    (see network_key.derive_key).

    Raises:
        ValueError: the network's name is empty or too long, or a key has not 32 bytes.
    """

    def __init__(
        self,
        identity: Identity,
        network: str,
        static: bytes,
        major: int = PROTOCOL_MAJOR,
        key: bytes | None = None,
    ) -> None:
        if not 0 < len(network.encode()) <= MAX_NETWORK_BYTES:
            raise ValueError(f"a network's name has 1 to {MAX_NETWORK_BYTES} bytes")
        if key is not None and len(key) != KEY_BYTES:
            raise ValueError(f"a network key has {KEY_BYTES} bytes")
        self.node = identity.node
        self.network = network
        self.major = major
        self.static = static
        self.key = key
        self.prologues = {
            way: word + major.to_bytes(2, "big") + network.encode() for way, word in _WAYS.items()
        }
        self.tag = network_tag(network)
        self._identity = identity
        self._public = public_key(static)
        self.hello = _encode(_Hello(major, PROTOCOL_MINOR, self.tag))
        self._proofs = {(role, way): self._prove(role, way) for role in _ROLES for way in _WAYS}

    def proof(self, role: Role, way: Way) -> bytes:
        """The payload that proves this node in `role`."""
        return self._proofs[role, way]

    def _prove(self, role: Role, way: Way) -> bytes:
        statement = _statement(role, self.prologues[way], self._public)
        signature = self._identity.sign("channel", statement)
        return _encode(_Proof(self.node, signature, self.major, PROTOCOL_MINOR))


def network_tag(network: str) -> bytes:
    """What stands for a network's name in clear, 16 bytes. Its key has no part in it."""
    return hashlib.sha256(b"diffuse/network\x00" + network.encode()).digest()[:16]


class Handshake:
    """One side of opening a channel: feed it what arrives, send what it returns.

    `ephemeral` is a 32-byte X25519 secret made for this handshake alone. `expected` is the id that
    a dialler wants to reach, when it knows; a listener may know it as well. After any failure the
    handshake stays failed.
    """

    def __init__(
        self,
        credentials: Credentials,
        role: Role,
        ephemeral: bytes,
        expected: NodeId | None = None,
        way: Way = "direct",
    ) -> None:
        self._own = credentials
        self._role: Role = role
        self._way: Way = way
        self._expected = expected
        self._noise = XX(
            initiator=role == "dialler",
            prologue=credentials.prologues[way],
            static=credentials.static,
            ephemeral=ephemeral,
            psk=credentials.key,
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
        if self._role == "listener":
            return None
        message = self._noise.write(self._own.hello)
        if self._own.key is None:
            return message
        hello = _decode(_hello_decoder, self._own.hello)
        sealed = msgspec.structs.replace(hello, sealed=message[KEY_BYTES:])
        return message[:KEY_BYTES] + _encode(sealed)

    def receive(self, message: bytes) -> bytes | None:
        """Take the other side's message; the answer to send, if one is due.

        Raises:
            HandshakeFailed: the other side is not who or what it must be; close the connection.
        """
        awaited, self._awaits = self._awaits, "nothing"
        if awaited == "nothing" or len(message) > MAX_HANDSHAKE_BYTES:
            raise HandshakeFailed("a message came that has no place in a handshake", "malformed")
        try:
            if awaited == "hello":
                return self._greet(message)
            remote = self._check(_decode(_proof_decoder, self._noise.read(message)))
            answer = None
            if self._role == "dialler":
                answer = self._noise.write(self._own.proof("dialler", self._way))
        except SecretError as error:
            raise HandshakeFailed(
                "the other node has another network key; give both the same --network-key", "key"
            ) from error
        except NoiseError as error:
            raise HandshakeFailed(f"the handshake failed: {error}", "malformed") from error
        self._remote = remote
        return answer

    def session(self) -> SealedStream:
        """The stream of frames; to be taken once, when done."""
        if self._remote is None:
            raise ChannelClosed("the other end is not proven")
        return SealedStream(*self._noise.split())

    def _greet(self, message: bytes) -> bytes:
        hello = _decode(_hello_decoder, message[KEY_BYTES:])
        self._same_major(hello.major)
        if hello.network != self._own.tag:
            raise HandshakeFailed(
                f"the other node is not on network {self._own.network!r}; "
                "give both the same --network",
                "network",
            )
        self._same_kind(keyed=bool(hello.sealed))
        if hello.sealed:
            again = _decode(_hello_decoder, self._noise.read(message[:KEY_BYTES] + hello.sealed))
            if again != msgspec.structs.replace(hello, sealed=b""):
                raise NoiseError("the greeting was changed")
        else:
            self._noise.read(message)
        self._awaits = "proof"
        return self._noise.write(self._own.proof("listener", self._way))

    def _same_kind(self, *, keyed: bool) -> None:
        if self._own.key is not None and not keyed:
            raise HandshakeFailed(
                "the other node gave no network key, and this network has one; give it the same "
                "--network-key",
                "keyed",
            )
        if self._own.key is None and keyed:
            raise HandshakeFailed(
                "the other node has a network key, this one none; give both the same "
                "--network-key, or none",
                "keyless",
            )

    def _same_major(self, major: int) -> None:
        if major != self._own.major:
            raise HandshakeFailed(
                f"the other node speaks protocol {major}, this one {self._own.major}; "
                "update the older one",
                "version",
            )

    def _check(self, proof: _Proof) -> NodeId:
        other: Role = "listener" if self._role == "dialler" else "dialler"
        statement = _statement(other, self._own.prologues[self._way], self._noise.remote_static)
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
                node,
            )
        return node


def _statement(role: Role, prologue: bytes, static: bytes) -> bytes:
    # The role has one byte and the key a fixed length: nothing can be read two ways.
    return (b"\x00" if role == "dialler" else b"\x01") + static + prologue


def _decode(decoder: msgspec.msgpack.Decoder[_Payload], payload: bytes) -> _Payload:
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, ValueError) as error:
        raise NoiseError("a payload is malformed") from error
