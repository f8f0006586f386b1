"""Noise_XX_25519_ChaChaPoly_SHA256, and XXpsk2 for a shared secret, without I/O.

Follows the Noise Protocol Framework, revision 34 (https://noiseprotocol.org/noise.html); names in
brackets below are those of its section 5. Secrets come in as arguments, so that a published test
vector can be replayed byte for byte.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Literal

from nacl import bindings
from nacl.exceptions import CryptoError

PROTOCOL_NAME = b"Noise_XX_25519_ChaChaPoly_SHA256"
PSK_PROTOCOL_NAME = b"Noise_XXpsk%d_25519_ChaChaPoly_SHA256"
PSK_AFTER = 2
"""With a shared secret: after which message it is mixed in (section 9.4)."""
KEY_BYTES = 32
TAG_BYTES = 16
MAX_MESSAGE_BYTES = 65535
"""Of one Noise message, tag included (section 3)."""

_LAST_NONCE = 2**64 - 1
"""Reserved for rekeying (section 11.3)."""

_pack_nonce = struct.Struct("<4xQ").pack

_Token = Literal["e", "s", "ee", "es", "se", "psk"]
_DH = ("ee", "es", "se")
_PATTERN: tuple[tuple[_Token, ...], ...] = (("e",), ("e", "ee", "s", "es"), ("s", "se"))


class NoiseError(Exception):
    """The other side broke the protocol, or the bytes were changed; nothing can be mended."""


class SecretError(NoiseError):
    """The other side has another shared secret, or none, or the bytes were changed."""


def public_key(secret: bytes) -> bytes:
    """The X25519 public key of a 32-byte secret."""
    return bindings.crypto_scalarmult_base(secret)


class CipherState:
    """A key and the count of messages it was used for [CipherState]."""

    def __init__(self, key: bytes, nonce: int = 0) -> None:
        self._key = key
        self._nonce = nonce

    def encrypt(self, plaintext: bytes, ad: bytes = b"") -> bytes:
        """[EncryptWithAd]: TAG_BYTES longer than `plaintext`.

        Raises:
            NoiseError: the nonces are used up.
        """
        sealed = bindings.crypto_aead_chacha20poly1305_ietf_encrypt(
            plaintext, ad, self._pack(), self._key
        )
        self._nonce += 1
        return sealed

    def decrypt(self, ciphertext: bytes, ad: bytes = b"") -> bytes:
        """[DecryptWithAd].

        Raises:
            NoiseError: not what the other side encrypted next.
        """
        try:
            opened = bindings.crypto_aead_chacha20poly1305_ietf_decrypt(
                ciphertext, ad, self._pack(), self._key
            )
        except (CryptoError, ValueError) as error:
            raise NoiseError("a message failed its authentication") from error
        self._nonce += 1
        return opened

    def rekey(self) -> None:
        """[Rekey]: replace the key by one that does not reveal it; the nonce counts on."""
        self._key = bindings.crypto_aead_chacha20poly1305_ietf_encrypt(
            bytes(KEY_BYTES), b"", _pack_nonce(_LAST_NONCE), self._key
        )[:KEY_BYTES]

    def _pack(self) -> bytes:
        if self._nonce >= _LAST_NONCE:
            raise NoiseError("the channel sent all it may; open another")
        return _pack_nonce(self._nonce)


class SymmetricState:
    """Chaining key, transcript hash and the cipher they lead to [SymmetricState]."""

    def __init__(self, name: bytes = PROTOCOL_NAME) -> None:
        # A name of exactly HASHLEN bytes is the first hash as it stands.
        self.hash = self._chain = name if len(name) <= KEY_BYTES else hashlib.sha256(name).digest()
        self._cipher: CipherState | None = None

    def mix_hash(self, data: bytes) -> None:
        """[MixHash]."""
        self.hash = hashlib.sha256(self.hash + data).digest()

    def mix_key(self, material: bytes) -> None:
        """[MixKey]."""
        self._chain, key = _hkdf(self._chain, material, 2)
        self._cipher = CipherState(key)

    def mix_key_and_hash(self, secret: bytes) -> None:
        """[MixKeyAndHash]."""
        self._chain, digest, key = _hkdf(self._chain, secret, 3)
        self.mix_hash(digest)
        self._cipher = CipherState(key)

    def encrypt_and_hash(self, plaintext: bytes) -> bytes:
        """[EncryptAndHash]: in clear as long as there is no key."""
        sealed = self._cipher.encrypt(plaintext, self.hash) if self._cipher else plaintext
        self.mix_hash(sealed)
        return sealed

    def decrypt_and_hash(self, data: bytes) -> bytes:
        """[DecryptAndHash]. Raises NoiseError."""
        opened = self._cipher.decrypt(data, self.hash) if self._cipher else data
        self.mix_hash(data)
        return opened

    def split(self) -> tuple[CipherState, CipherState]:
        """[Split]: the initiator's sending and receiving cipher."""
        first, second = _hkdf(self._chain, b"", 2)
        return CipherState(first), CipherState(second)


class XX:
    """One side of the XX handshake [HandshakeState]: write and read in turn, three messages.

    `static` and `ephemeral` are 32-byte X25519 secrets; the ephemeral one must be used once only.
    With `psk`, 32 bytes that both sides must have, it is XXpsk2. There the second message's
    payload is the first thing that the secret protects. Nothing can be tried against a recorded
    handshake, since that payload is also under a key agreed on with ephemeral secrets: psk0 and
    psk1 would give whoever listens something to try guesses on, psk3 would show the responder's
    payload to whoever dials.
    `psk_after` is the number behind `psk`; Diffuse uses the default.
    """

    def __init__(
        self,
        *,
        initiator: bool,
        prologue: bytes,
        static: bytes,
        ephemeral: bytes,
        psk: bytes | None = None,
        psk_after: int = PSK_AFTER,
    ) -> None:
        self._initiator = initiator
        self._secrets = {"s": static, "e": ephemeral}
        self._remote: dict[str, bytes] = {}
        self._psk = psk
        self._pattern = _PATTERN
        name = PROTOCOL_NAME
        if psk is not None:
            name = PSK_PROTOCOL_NAME % psk_after
            self._pattern = tuple(
                (*tokens, "psk") if number == psk_after else tokens
                for number, tokens in enumerate(_PATTERN, start=1)
            )
        self._symmetric = SymmetricState(name)
        self._symmetric.mix_hash(prologue)
        self._step = 0

    @property
    def done(self) -> bool:
        """Whether all three messages passed."""
        return self._step == len(self._pattern)

    @property
    def hash(self) -> bytes:
        """The transcript hash so far."""
        return self._symmetric.hash

    @property
    def remote_static(self) -> bytes:
        """The other side's static public key, proven once its message was read."""
        return self._remote["s"]

    def write(self, payload: bytes) -> bytes:
        """The next message [WriteMessage].

        Raises:
            NoiseError: it is not this side's turn, or the other side's key is of low order.
        """
        parts: list[bytes] = []
        for token in self._turn(writing=True):
            if token in self._secrets:
                parts.append(self._write_key(token))
            else:
                self._mix(token)
        parts.append(self._symmetric.encrypt_and_hash(payload))
        return b"".join(parts)

    def read(self, message: bytes) -> bytes:
        """The payload of the other side's next message [ReadMessage].

        Raises:
            NoiseError: out of turn, too short, changed, or with a key of low order.
            SecretError: all but what the shared secret protects was in order.
        """
        rest = message
        tokens = self._turn(writing=False)
        for token in tokens:
            if token in self._secrets:
                rest = self._read_key(token, rest)
            else:
                self._mix(token)
        try:
            return self._symmetric.decrypt_and_hash(rest)
        except NoiseError as error:
            if "psk" in tokens:
                raise SecretError("the shared secrets differ") from error
            raise

    def split(self) -> tuple[CipherState, CipherState]:
        """This side's (sending, receiving) ciphers, once done."""
        first, second = self._symmetric.split()
        return (first, second) if self._initiator else (second, first)

    def _turn(self, *, writing: bool) -> tuple[_Token, ...]:
        mine = (self._step % 2 == 0) == self._initiator
        if self.done or mine != writing:
            raise NoiseError("a handshake message came out of turn")
        self._step += 1
        return self._pattern[self._step - 1]

    def _write_key(self, name: _Token) -> bytes:
        public = public_key(self._secrets[name])
        if name == "s":
            return self._symmetric.encrypt_and_hash(public)
        self._mix_ephemeral(public)
        return public

    def _read_key(self, name: _Token, rest: bytes) -> bytes:
        size = KEY_BYTES + TAG_BYTES if name == "s" else KEY_BYTES
        # Also keeps a key of fewer bytes, rightly encrypted, away from libsodium.
        if len(rest) < size:
            raise NoiseError("a handshake message was cut short")
        key = rest[:size]
        if name == "s":
            key = self._symmetric.decrypt_and_hash(key)
        else:
            self._mix_ephemeral(key)
        self._remote[name] = key
        return rest[size:]

    def _mix_ephemeral(self, public: bytes) -> None:
        self._symmetric.mix_hash(public)
        if self._psk is not None:
            # Makes the keys of every handshake differ although the secret does not (section 9.2).
            self._symmetric.mix_key(public)

    def _mix(self, token: _Token) -> None:
        if self._psk is not None and token not in _DH:
            self._symmetric.mix_key_and_hash(self._psk)
            return
        # The first letter is the initiator's key, the second the responder's.
        mine, theirs = tuple(token if self._initiator else reversed(token))
        try:
            shared = bindings.crypto_scalarmult(self._secrets[mine], self._remote[theirs])
        except RuntimeError as error:
            # libsodium refuses every point of low order and every result of zeros.
            raise NoiseError("the other side's key is of low order") from error
        self._symmetric.mix_key(shared)


def _hkdf(chain: bytes, material: bytes, outputs: int) -> list[bytes]:
    """[HKDF], which is RFC 5869 with `chain` as salt and no info."""
    secret = hmac.digest(chain, material, "sha256")
    found = [hmac.digest(secret, b"\x01", "sha256")]
    for number in range(2, outputs + 1):
        found.append(hmac.digest(secret, found[-1] + bytes([number]), "sha256"))
    return found
