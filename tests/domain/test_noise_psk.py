"""XXpsk2: against another implementation, a published vector, and guesses of the secret."""

from __future__ import annotations

import pytest
from noise.connection import Keypair, NoiseConnection

from diffuse_core.domain.noise import XX, NoiseError, SecretError, public_key
from tests.domain.test_noise import (
    INIT_EPHEMERAL,
    INIT_STATIC,
    PAYLOADS,
    RESP_EPHEMERAL,
    RESP_STATIC,
)

SECRET = b"This is my Austrian perspective!"

# Noise_XXpsk3_25519_ChaChaPoly_SHA256 of the cacophony collection, which has no XXpsk2.
XXPSK3 = (
    "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944"
    "c9f5ff0e8079630cb7e270c20bbf480821b77a384a645c71a2fd9b3db1c16a5f",
    "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
    "b123def17f71e6ae8e57e0e1dec5949c5f7415c6f33517398747d821a06dc23a"
    "d430aa1fd7381d46195c378a819fd574425462cbb2d4ca339e738a0b7001dc91"
    "423fbf55a99af0c6f1df21012ceb2f",
    "52187316111b118d4c060364f7b975dc0809b2590779aff2d63113c564f11744"
    "493384db7bf32d5ae6686df6ab06d508d2e07caaf1d6afc010b978735fc78900"
    "e71ae1d314130d042e729a",
    "eaedc672d4c21e0e2955758756fb98f194c4e90d5deb5b6cf30b27",
    "522d543c5fe799d09a3d9da7ff54d0dc03c8af1dc7751d2ff708339d2290943e98",
    "7d4e2c3873eef6a213b04e72f9df60a91666072d3544c5d96c34a09e2329b5030bee796741",
)


def sides(one: bytes = SECRET, other: bytes = SECRET, **options: int) -> tuple[XX, XX]:
    statics, ephemerals = (INIT_STATIC, RESP_STATIC), (INIT_EPHEMERAL, RESP_EPHEMERAL)
    prologue = bytes.fromhex("4a6f686e2047616c74")
    return tuple(
        XX(
            initiator=at == 0,
            prologue=prologue,
            static=statics[at],
            ephemeral=ephemerals[at],
            psk=secret,
            **options,
        )
        for at, secret in enumerate((one, other))
    )


def test_the_published_vector_of_the_same_rules_with_the_secret_one_message_later() -> None:
    a, b = sides(psk_after=3)
    for (writer, reader), payload, wire in zip(
        ((a, b), (b, a), (a, b)), PAYLOADS, XXPSK3, strict=False
    ):
        assert writer.write(bytes.fromhex(payload)).hex() == wire
        assert reader.read(bytes.fromhex(wire)).hex() == payload
    assert a.hash == b.hash
    (a_sends, a_gets), (b_sends, b_gets) = a.split(), b.split()
    turns = ((b_sends, a_gets), (a_sends, b_gets), (b_sends, a_gets))
    for (sends, gets), payload, wire in zip(turns, PAYLOADS[3:], XXPSK3[3:], strict=True):
        assert sends.encrypt(bytes.fromhex(payload)).hex() == wire
        assert gets.decrypt(bytes.fromhex(wire)).hex() == payload


def other_implementation(*, initiator: bool, secret: bytes = SECRET) -> NoiseConnection:
    connection = NoiseConnection.from_name(b"Noise_XXpsk2_25519_ChaChaPoly_SHA256")
    connection.set_psks(secret)
    connection.set_as_initiator() if initiator else connection.set_as_responder()
    connection.set_prologue(b"John Galt")
    static = INIT_STATIC if initiator else RESP_STATIC
    connection.set_keypair_from_private_bytes(Keypair.STATIC, static)
    connection.start_handshake()
    return connection


def test_talks_to_another_implementation_as_initiator() -> None:
    a, b = sides()[0], other_implementation(initiator=False)
    assert b.read_message(a.write(b"one")) == b"one"
    assert a.read(bytes(b.write_message(b"two"))) == b"two"
    assert b.read_message(a.write(b"three")) == b"three"
    assert b.get_handshake_hash() == a.hash
    assert a.remote_static == public_key(RESP_STATIC)
    sends, gets = a.split()
    assert b.decrypt(sends.encrypt(b"there")) == b"there"
    assert gets.decrypt(bytes(b.encrypt(b"back"))) == b"back"


def test_talks_to_another_implementation_as_responder() -> None:
    a, b = other_implementation(initiator=True), sides()[1]
    assert b.read(bytes(a.write_message(b"one"))) == b"one"
    assert a.read_message(b.write(b"two")) == b"two"
    assert b.read(bytes(a.write_message(b"three"))) == b"three"
    sends, gets = b.split()
    assert gets.decrypt(bytes(a.encrypt(b"there"))) == b"there"
    assert a.decrypt(sends.encrypt(b"back")) == b"back"


def test_another_secret_is_told_by_whoever_dialled_and_nothing_of_theirs_was_sent() -> None:
    a, b = sides(other=bytes(32))
    assert b.read(a.write(b"hello")) == b"hello"
    with pytest.raises(SecretError, match="differ"):
        a.read(b.write(b"who I am"))


def test_without_a_secret_the_second_message_cannot_be_read() -> None:
    _, b = sides()
    stranger = XX(
        initiator=True, prologue=b"John Galt", static=INIT_STATIC, ephemeral=INIT_EPHEMERAL
    )
    with pytest.raises(NoiseError):
        b.read(stranger.write(b""))


def test_a_change_before_what_the_secret_protects_is_no_matter_of_secrets() -> None:
    a, b = sides()
    b.read(a.write(b""))
    changed = bytearray(b.write(b"x"))
    changed[40] ^= 1
    with pytest.raises(NoiseError) as caught:
        a.read(bytes(changed))
    assert not isinstance(caught.value, SecretError)


def test_nothing_recorded_depends_on_the_secret_alone() -> None:
    """Whoever guesses the secret and saw the first message still cannot read the second.

    With the ephemeral secrets of neither side a guess has nothing to be tried on: the same bytes
    of a first message come of every secret.
    """
    first = {sides(secret)[0].write(b"hello") for secret in (SECRET, bytes(32), b"\x01" * 32)}
    assert len(first) == 1
