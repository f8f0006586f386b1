"""Noise against published vectors, against another implementation, and against tampering."""

from __future__ import annotations

import hashlib

import pytest
from nacl import bindings
from noise.connection import Keypair, NoiseConnection

from diffuse_core.domain.noise import XX, CipherState, NoiseError, public_key

INIT_STATIC = bytes.fromhex("e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1")
INIT_EPHEMERAL = bytes.fromhex("893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a")
RESP_STATIC = bytes.fromhex("4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893")
RESP_EPHEMERAL = bytes.fromhex("bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b")

PAYLOADS = (
    "4c756477696720766f6e204d69736573",
    "4d757272617920526f746862617264",
    "462e20412e20486179656b",
    "4361726c204d656e676572",
    "4a65616e2d426170746973746520536179",
    "457567656e2042f6686d20766f6e2042617765726b",
)
TRANSPORT = (
    "96763ed773f8e47bb3712f0e29b3060ffc956ffc146cee53d5e1df",
    "3e40f15f6f3a46ae446b253bf8b1d9ffb6ed9b174d272328ff91a7e2e5c79c07f5",
    "eb3f3515110702e047a6c9da4478b6ead94873c11c0f2d710ddb3f09fce024b3a58502ae3f",
)
# Noise_XX_25519_ChaChaPoly_SHA256 of the cacophony collection, which most implementations share.
CACOPHONY = (
    "4a6f686e2047616c74",
    (
        "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944"
        "4c756477696720766f6e204d69736573",
        "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
        "81cbad1f276e038c48378ffce2b65285e08d6b68aaa3629a5a8639392490e5b9"
        "bd5269c2f1e4f488ed8831161f19b7815528f8982ffe09be9b5c412f8a0db50f"
        "8814c7194e83f23dbd8d162c9326ad",
        "c7195ffacac1307ff99046f219750fc47693e23c3cb08b89c2af808b444850a8"
        "0ae475b9df0f169ae80a89be0865b57f58c9fea0d4ec82a286427402f113e4b6"
        "ae769a1d95941d49b25030",
        *TRANSPORT,
    ),
    None,
)
# The same handshake with another prologue, from the collection of noise-c; it has the hash too.
NOISE_C = (
    "50726f6c6f677565313233",
    (
        CACOPHONY[1][0],
        "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
        "81cbad1f276e038c48378ffce2b65285e08d6b68aaa3629a5a8639392490e5b9"
        "4a6d8798832d5372f220f161d9c2df035528f8982ffe09be9b5c412f8a0db5d2"
        "1351f20af1370d0bf8ef1a8c59a30e",
        "c7195ffacac1307ff99046f219750fc47693e23c3cb08b89c2af808b444850a8"
        "589981dfbd651e6ff4724a781cc2aa6158c9fea0d4ec82a286427484c5b8c812"
        "3a7a6002b1de9f9775fc97",
        *TRANSPORT,
    ),
    "852a28d2146785c54bd8334f4e460c80d7fe4fd0cc5bc0abef2a24a3c4d44d5f",
)

LOW_ORDER = (
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
)


def sides(prologue: bytes = b"p") -> tuple[XX, XX]:
    return (
        XX(initiator=True, prologue=prologue, static=INIT_STATIC, ephemeral=INIT_EPHEMERAL),
        XX(initiator=False, prologue=prologue, static=RESP_STATIC, ephemeral=RESP_EPHEMERAL),
    )


def finished() -> tuple[XX, XX]:
    a, b = sides()
    for writer, reader in ((a, b), (b, a), (a, b)):
        reader.read(writer.write(b""))
    return a, b


@pytest.mark.parametrize("vector", [CACOPHONY, NOISE_C], ids=["cacophony", "noise-c"])
def test_published_vectors(vector: tuple) -> None:
    prologue, ciphertexts, digest = vector
    a, b = sides(bytes.fromhex(prologue))
    turns = ((a, b), (b, a), (a, b))
    for (writer, reader), payload, wire in zip(turns, PAYLOADS, ciphertexts, strict=False):
        assert writer.write(bytes.fromhex(payload)).hex() == wire
        assert reader.read(bytes.fromhex(wire)).hex() == payload
    assert a.done
    assert b.done
    assert a.remote_static == public_key(RESP_STATIC)
    assert b.remote_static == public_key(INIT_STATIC)
    assert a.hash == b.hash
    if digest is not None:
        assert a.hash.hex() == digest
    (a_sends, a_gets), (b_sends, b_gets) = a.split(), b.split()
    turns = ((b_sends, a_gets), (a_sends, b_gets), (b_sends, a_gets))
    for (sends, gets), payload, wire in zip(turns, PAYLOADS[3:], ciphertexts[3:], strict=True):
        assert sends.encrypt(bytes.fromhex(payload)).hex() == wire
        assert gets.decrypt(bytes.fromhex(wire)).hex() == payload


def other_implementation(*, initiator: bool, static: bytes) -> NoiseConnection:
    connection = NoiseConnection.from_name(b"Noise_XX_25519_ChaChaPoly_SHA256")
    connection.set_as_initiator() if initiator else connection.set_as_responder()
    connection.set_prologue(b"p")
    connection.set_keypair_from_private_bytes(Keypair.STATIC, static)
    connection.start_handshake()
    return connection


def test_talks_to_another_implementation_as_initiator() -> None:
    a = sides()[0]
    b = other_implementation(initiator=False, static=RESP_STATIC)
    assert b.read_message(a.write(b"one")) == b"one"
    assert a.read(bytes(b.write_message(b"two"))) == b"two"
    assert b.read_message(a.write(b"three")) == b"three"
    assert b.get_handshake_hash() == a.hash
    sends, gets = a.split()
    assert b.decrypt(sends.encrypt(b"there")) == b"there"
    assert gets.decrypt(bytes(b.encrypt(b"back"))) == b"back"


def test_talks_to_another_implementation_as_responder_and_rekeys_alike() -> None:
    a = other_implementation(initiator=True, static=INIT_STATIC)
    b = sides()[1]
    assert b.read(bytes(a.write_message(b"one"))) == b"one"
    assert a.read_message(b.write(b"two")) == b"two"
    assert b.read(bytes(a.write_message(b"three"))) == b"three"
    sends, gets = b.split()
    assert gets.decrypt(bytes(a.encrypt(b"before"))) == b"before"
    a.rekey_outbound_cipher()
    gets.rekey()
    assert gets.decrypt(bytes(a.encrypt(b"after"))) == b"after"
    sends.rekey()
    a.rekey_inbound_cipher()
    assert a.decrypt(sends.encrypt(b"back")) == b"back"


@pytest.mark.parametrize("index", [0, 1, 2])
def test_every_flipped_bit_of_every_handshake_message_is_noticed(index: int) -> None:
    for at in range(10_000):
        a, b = sides()
        turns = ((a, b), (b, a), (a, b))
        for writer, reader in turns[:index]:
            reader.read(writer.write(b"x"))
        message = bytearray(turns[index][0].write(b"x"))
        if at == len(message) * 8:
            break
        message[at // 8] ^= 1 << at % 8
        with pytest.raises(NoiseError):
            # A change in the first message, which is in clear, shows at the second.
            read_to_the_end(turns, index, bytes(message))


def read_to_the_end(turns: tuple, index: int, message: bytes) -> None:
    turns[index][1].read(message)
    for writer, reader in turns[index + 1 :]:
        reader.read(writer.write(b"x"))
    # The top bit of an X25519 public key means nothing to the curve, but the hash covers it.
    raise AssertionError("the change went unnoticed")


@pytest.mark.parametrize("index", [0, 1, 2])
def test_every_shortened_handshake_message_is_refused(index: int) -> None:
    for size in range(200):
        a, b = sides()
        turns = ((a, b), (b, a), (a, b))
        for writer, reader in turns[:index]:
            reader.read(writer.write(b""))
        message = turns[index][0].write(b"")
        if size == len(message):
            break
        with pytest.raises(NoiseError):
            turns[index][1].read(message[:size])


@pytest.mark.parametrize("key", LOW_ORDER, ids=lambda key: key[:4].hex())
def test_low_order_ephemeral_keys_are_refused(key: bytes) -> None:
    b = sides()[1]
    b.read(key)
    with pytest.raises(NoiseError, match="low order"):
        b.write(b"")


def test_low_order_static_key_is_refused() -> None:
    a = Forger(initiator=True, prologue=b"p", static=INIT_STATIC, ephemeral=INIT_EPHEMERAL)
    b = sides()[1]
    b.read(a.write(b""))
    a.read(b.write(b""))
    a.forged = bytes(32)
    with pytest.raises(NoiseError, match="low order"):
        b.read(a.write(b""))


def test_short_static_key_rightly_encrypted_is_refused() -> None:
    a = Forger(initiator=True, prologue=b"p", static=INIT_STATIC, ephemeral=INIT_EPHEMERAL)
    b = sides()[1]
    b.read(a.write(b""))
    a.read(b.write(b""))
    a.forged = bytes(8)
    with pytest.raises(NoiseError, match="cut short"):
        b.read(a.write(b"")[:24])


class Forger(XX):
    """Sends `forged` as its static key, properly encrypted."""

    forged = b""

    def _write_key(self, name: str) -> bytes:
        if name == "s" and self.forged:
            return self._symmetric.encrypt_and_hash(self.forged)
        return super()._write_key(name)


def test_messages_out_of_turn_are_refused() -> None:
    a, b = sides()
    with pytest.raises(NoiseError, match="turn"):
        a.read(b"")
    with pytest.raises(NoiseError, match="turn"):
        b.write(b"")
    a, b = finished()
    with pytest.raises(NoiseError, match="turn"):
        b.write(b"")


def test_another_prologue_fails() -> None:
    a, b = sides()[0], sides(b"q")[1]
    b.read(a.write(b""))
    with pytest.raises(NoiseError, match="authentication"):
        a.read(b.write(b""))


def test_a_cipher_refuses_replay_and_reordering_and_goes_on_with_the_right_message() -> None:
    a, b = finished()
    sends, gets = a.split()[0], b.split()[1]
    first, second = sends.encrypt(b"1"), sends.encrypt(b"2")
    with pytest.raises(NoiseError):
        gets.decrypt(second)
    assert gets.decrypt(first) == b"1"
    with pytest.raises(NoiseError):
        gets.decrypt(first)
    assert gets.decrypt(second) == b"2"


def test_ciphers_of_the_two_directions_differ() -> None:
    a_sends, a_gets = finished()[0].split()
    assert a_sends.encrypt(b"x") != a_gets.encrypt(b"x")


def test_rekey_follows_the_specification() -> None:
    key = hashlib.sha256(b"key").digest()
    cipher = CipherState(key)
    cipher.encrypt(b"")
    cipher.rekey()
    last = bytes(4) + b"\xff" * 8
    fresh = bindings.crypto_aead_chacha20poly1305_ietf_encrypt(bytes(32), b"", last, key)[:32]
    assert cipher.encrypt(b"x") == CipherState(fresh, nonce=1).encrypt(b"x")


def test_the_reserved_nonce_is_never_used() -> None:
    cipher = CipherState(bytes(32), nonce=2**64 - 2)
    cipher.encrypt(b"the last one")
    with pytest.raises(NoiseError, match="open another"):
        cipher.encrypt(b"one too many")
