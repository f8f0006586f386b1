"""Node identity: an Ed25519 key pair; the public key is the node id.

Every signature carries a domain label, so that one made for a record can never pass for one made
for a handshake. Bytes are verified as they were received, never re-serialised.
"""

from __future__ import annotations

from typing import Annotated, Literal, NewType

import msgspec
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

NodeId = NewType("NodeId", bytes)
"""An Ed25519 public key, 32 bytes."""

WireNodeId = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Signature = Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]
Label = Literal["record", "channel"]

_PREFIX = b"diffuse/1/"
SHORT_LENGTH = 8


class Identity:
    """A node's own key pair. Holds the secret: never logged, never serialised but by `seed`."""

    def __init__(self, seed: bytes) -> None:
        """Build from the 32-byte Ed25519 seed.

        Raises:
            ValueError: when the seed is not 32 bytes.
        """
        if len(seed) != 32:
            raise ValueError("an identity seed has 32 bytes")
        self._key = SigningKey(seed)
        self.node = NodeId(bytes(self._key.verify_key))

    @property
    def seed(self) -> bytes:
        """The 32 secret bytes from which the identity can be built again."""
        return bytes(self._key)

    def sign(self, label: Label, payload: bytes) -> bytes:
        """The 64-byte Ed25519 signature of `payload` under `label`."""
        return self._key.sign(_labelled(label, payload)).signature


def verify(node: bytes, label: Label, payload: bytes, signature: bytes) -> bool:
    """Whether `signature` is that of `node` over exactly these bytes under `label`."""
    try:
        VerifyKey(node).verify(_labelled(label, payload), signature)
    except (BadSignatureError, ValueError, TypeError):
        return False
    return True


def _labelled(label: Label, payload: bytes) -> bytes:
    return _PREFIX + label.encode() + b"\x00" + payload


def node_text(node: bytes) -> str:
    """The full node id as 64 hexadecimal digits."""
    return node.hex()


def short_text(node: bytes) -> str:
    """The first 8 hexadecimal digits: enough to tell nodes apart on a screen."""
    return node.hex()[:SHORT_LENGTH]
