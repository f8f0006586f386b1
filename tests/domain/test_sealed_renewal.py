"""Keys of a sealed stream that get old are replaced, and both ends agree when."""

from __future__ import annotations

import pytest

from diffuse_core.domain import noise
from diffuse_core.domain import sealed_stream as module
from diffuse_core.domain.noise import MAX_MESSAGE_BYTES, CipherState
from diffuse_core.domain.sealed_stream import REKEY_S, SealedStream
from diffuse_core.errors import ChannelClosed

CHUNK = MAX_MESSAGE_BYTES - 17
RENEWAL = 19
"""Bytes of a renewal on the wire, and of an empty frame."""


def streams() -> tuple[SealedStream, SealedStream]:
    there, back = b"t" * 32, b"b" * 32
    return (
        SealedStream(CipherState(there), CipherState(back)),
        SealedStream(CipherState(back), CipherState(there)),
    )


def aged() -> tuple[SealedStream, SealedStream, bytes]:
    """Two ends, and the wire message that renews the key of one direction."""
    a, b = streams()
    assert b.open(a.seal(b"first", 100.0)) == b"first"
    return a, b, a.seal(b"renewed", 100.0 + REKEY_S)


def test_a_key_is_replaced_an_hour_after_its_first_use_and_no_sooner() -> None:
    a, b = streams()
    sizes = []
    times = (5.0, 4.9 + REKEY_S, 5.0 + REKEY_S, 5.1 + REKEY_S, 5.0 + 2 * REKEY_S, 9 * REKEY_S)
    for now in times:
        key = a._sending._key
        wire = a.seal(b"", now)
        sizes.append((len(wire) - RENEWAL, a._sending._key != key))
        assert b.open(wire) == b""
        assert a._sending._key == b._receiving._key
    same, renewed = (0, False), (RENEWAL, True)
    assert sizes == [same, same, renewed, same, renewed, renewed]


def test_each_direction_goes_by_the_clock_of_its_sender() -> None:
    a, b = streams()
    for now in (0.0, REKEY_S, 3 * REKEY_S):
        assert b.open(a.seal(b"there", now)) == b"there"
        assert a.open(b.seal(b"back", -now / 2)) == b"back"
    for now in (1e9, 2e9):
        assert a.open(b.seal(b"back", now)) == b"back"
    big = bytes(3 * CHUNK + 1)
    assert a.open(b.seal(big, 3e9)) == big
    assert b.open(a.close()) is None


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_renewals_and_counts_go_together(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(module, "REKEY_MESSAGES", count)
    a, b = streams()
    for step in range(60):
        # Sometimes an hour passes, sometimes a frame takes several messages.
        frame = bytes(step % 4 * CHUNK + step)
        now = step // 3 * REKEY_S
        assert b.open(a.seal(frame, now)) == frame
        assert a.open(b.seal(frame, now / 7)) == frame


def test_no_nonce_is_used_twice_under_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    real = noise.bindings.crypto_aead_chacha20poly1305_ietf_encrypt

    def encrypt(plain: bytes, ad: bytes, nonce: bytes, key: bytes) -> bytes:
        used.append((key, nonce))
        return real(plain, ad, nonce, key)

    monkeypatch.setattr(noise.bindings, "crypto_aead_chacha20poly1305_ietf_encrypt", encrypt)
    monkeypatch.setattr(module, "REKEY_MESSAGES", 3)
    a, b = streams()
    for step in range(50):
        b.open(a.seal(bytes(step % 3 * CHUNK), step // 2 * REKEY_S))
        a.open(b.seal(b"", step * REKEY_S / 5))
    # Both ends derive the next key by encrypting under the reserved nonce: the same bytes.
    last = bytes(4) + b"\xff" * 8
    frames = [pair for pair in used if pair[1] != last]
    assert len(frames) > 120
    assert len(set(frames)) == len(frames)
    assert len({key for key, _ in frames}) > 30


def refused(stream: SealedStream, wire: bytes) -> None:
    with pytest.raises(ChannelClosed):
        stream.open(wire)
    with pytest.raises(ChannelClosed, match="ended"):
        stream.open(wire)


def test_a_renewal_that_is_dropped_cut_doubled_or_moved_kills_the_stream() -> None:
    for change in (
        lambda wire: wire[RENEWAL:],
        lambda wire: wire[:RENEWAL],
        lambda wire: wire[:RENEWAL] + wire,
        lambda wire: wire[RENEWAL:] + wire[:RENEWAL],
        lambda wire: wire + wire[:RENEWAL],
    ):
        _, b, wire = aged()
        refused(b, change(wire))


def test_every_flipped_bit_and_every_length_of_a_renewal_kills_the_stream() -> None:
    size = len(aged()[2])
    for at in range(size * 8):
        _, b, wire = aged()
        changed = bytearray(wire)
        changed[at // 8] ^= 1 << at % 8
        refused(b, bytes(changed))
    for length in range(size):
        _, b, wire = aged()
        refused(b, wire[:length])


def test_a_renewal_of_another_stream_or_direction_kills_the_stream() -> None:
    a, b, wire = aged()
    refused(a, wire)
    assert b.open(wire) == b"renewed"
    other = SealedStream(CipherState(b"o" * 32), CipherState(b"t" * 32))
    b = streams()[1]
    other.seal(b"", 0.0)
    refused(b, other.seal(b"", REKEY_S))


@pytest.mark.parametrize("parts", [(b"\x03",), (b"\x03", b"\x03", b"\x01"), (b"\x03x", b"\x01")])
def test_renewals_without_a_frame_or_with_more_than_one_are_refused(
    parts: tuple[bytes, ...],
) -> None:
    a, b = streams()
    refused(b, b"".join(a._encrypt(part) for part in parts))


def test_a_renewal_in_the_middle_of_a_frame_is_refused() -> None:
    a, b = streams()
    refused(b, b"".join(map(a._encrypt, (b"\x00" + bytes(CHUNK), b"\x03", b"\x01end"))))
