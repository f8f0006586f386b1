"""Somebody in the middle, such as a sentinel, who runs handshakes of his own with both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from handshake_samples import (
    ALICE,
    BOB,
    EVE,
    WAYS,
    credentials,
    finish,
    forged,
    pair,
    refusal,
    show,
)

from diffuse_core.domain.channel import Handshake, HandshakeFailed
from diffuse_core.domain.noise import KEY_BYTES, XX, public_key
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from diffuse_core.domain.channel import Credentials, Role, Way

pytestmark = pytest.mark.parametrize("way", WAYS)


def noise(way: Way, *, initiator: bool) -> XX:
    """One side of a handshake of whoever is in the middle."""
    eve = credentials(EVE)
    return XX(
        initiator=initiator, prologue=eve.prologues[way], static=eve.static, ephemeral=b"\x33" * 32
    )


def stolen_proof(way: Way, role: Role) -> bytes:
    """Bob's proof as listener, or Alice's as dialler, got by talking to them as oneself."""
    a, b = pair(way=way)
    if role == "listener":
        eve = noise(way, initiator=True)
        return eve.read(b.receive(eve.write(credentials(EVE).hello)))
    eve = noise(way, initiator=False)
    eve.read(a.start())
    third = a.receive(eve.write(credentials(EVE).proof("listener", way)))
    return eve.read(third)


def middle(way: Way, shows: Credentials) -> Handshake:
    """What stands before Alice in Bob's place."""
    return Handshake(shows, "listener", b"\x33" * 32, None, way)


def refused_by_alice(way: Way, there: Handshake, expected: bytes = BOB.node) -> str:
    alice = Handshake(credentials(ALICE), "dialler", b"\x11" * 32, expected or None, way)
    second = there.receive(alice.start())
    with pytest.raises(HandshakeFailed) as caught:
        alice.receive(second)
    for use in (lambda: alice.remote, alice.session):
        with pytest.raises(ChannelClosed, match="not proven"):
            use()
    return caught.value.reason


def test_with_his_own_identity_he_is_not_whom_the_dialler_wants(way: Way) -> None:
    assert refused_by_alice(way, middle(way, credentials(EVE))) == "unexpected"


def test_where_nobody_in_particular_is_wanted_he_is_who_he_is(way: Way) -> None:
    a, b = pair(listener=credentials(EVE), way=way)
    finish(a, b)
    assert a.remote == EVE.node


def test_with_proofs_of_others_over_his_own_static_key(way: Way) -> None:
    bobs = stolen_proof(way, "listener")
    assert refused_by_alice(way, middle(way, forged(bobs))) == "identity"
    assert refused_by_alice(way, middle(way, forged(bobs)), expected=b"") == "identity"
    assert refusal(forged(stolen_proof(way, "dialler")), way) == "identity"


def test_with_proofs_and_static_keys_of_others_that_he_cannot_use(way: Way) -> None:
    there = middle(way, forged(stolen_proof(way, "listener")))
    show(there, s=public_key(credentials(BOB).static))
    assert refused_by_alice(way, there) == "malformed"
    a, b = pair(forged(stolen_proof(way, "dialler")), way=way)
    show(a, s=public_key(credentials(ALICE).static))
    third = a.receive(b.receive(a.start()))
    with pytest.raises(HandshakeFailed) as caught:
        b.receive(third)
    assert caught.value.reason == "malformed"
    assert not b.done


@pytest.mark.parametrize("index", [0, 1])
def test_with_ephemeral_keys_swapped_for_his_own(way: Way, index: int) -> None:
    a, b = pair(way=way)
    own = public_key(b"\x33" * 32)
    first = a.start()
    if index == 0:
        first = own + first[KEY_BYTES:]
    second = b.receive(first)
    if index == 1:
        second = own + second[KEY_BYTES:]
    with pytest.raises(HandshakeFailed) as caught:
        a.receive(second)
    assert caught.value.reason == "malformed"
    assert not b.done


def test_with_the_second_message_of_his_own_talk_to_bob(way: Way) -> None:
    """Bob answers him; what Bob said opens nothing for Alice."""
    eve = noise(way, initiator=True)
    _, bob = pair(way=way)
    bobs = bob.receive(eve.write(credentials(EVE).hello))
    alice = pair(expected=BOB.node, way=way)[0]
    alice.start()
    with pytest.raises(HandshakeFailed):
        alice.receive(bobs)
    assert not bob.done


def test_with_the_third_message_of_alices_talk_to_him(way: Way) -> None:
    """Alice dials him in his own name; what she proves there is of no use with Bob."""
    alice = pair(way=way)[0]
    there = middle(way, credentials(EVE))
    third = alice.receive(there.receive(alice.start()))
    bob = pair(way=way)[1]
    bob.receive(noise(way, initiator=True).write(credentials(EVE).hello))
    with pytest.raises(HandshakeFailed):
        bob.receive(third)
    assert not bob.done


def test_whoever_only_passes_bytes_on_learns_nothing_and_cannot_speak(way: Way) -> None:
    near, far = finish(*pair(way=way))
    wire = near.seal(b"a secret prompt", 0.0)
    assert b"secret" not in wire
    strange = finish(*pair(credentials(EVE), way=way))[0]
    for made in (strange.seal(b"of Eve", 0.0), wire[:2] + bytes(len(wire) - 2)):
        _, fresh = finish(*pair(way=way))
        with pytest.raises(ChannelClosed):
            fresh.open(made)
    assert far.open(wire) == b"a secret prompt"
