"""Direct and relayed handshakes and their proofs are worth nothing in each other's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from handshake_samples import ALICE, BOB, EVE, WAYS, credentials, finish, forged, pair, refusal

from diffuse_core.domain.channel import Handshake, HandshakeFailed, Role
from diffuse_core.domain.noise import public_key

if TYPE_CHECKING:
    from diffuse_core.domain.channel import Way

KEY = b"k" * 32
OTHER_WAY: dict[Way, Way] = {"direct": "relayed", "relayed": "direct"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("key", [None, KEY])
def test_frames_go_both_ways_when_both_know_the_way(way: Way, key: bytes | None) -> None:
    near, far = finish(*pair(credentials(ALICE, key=key), credentials(BOB, key=key), way=way))
    for sends, gets in ((near, far), (far, near)):
        assert gets.open(sends.seal(b"frame", 0.0)) == b"frame"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("key", [None, KEY])
def test_a_handshake_that_is_passed_on_the_other_way_fails(way: Way, key: bytes | None) -> None:
    a = Handshake(credentials(ALICE, key=key), "dialler", b"\x11" * 32, BOB.node, way)
    b = Handshake(credentials(BOB, key=key), "listener", b"\x22" * 32, None, OTHER_WAY[way])
    with pytest.raises(HandshakeFailed):
        a.receive(b.receive(a.start()))
    assert not a.done
    assert not b.done


@pytest.mark.parametrize("way", WAYS)
def test_a_proof_of_the_other_way_is_refused(way: Way) -> None:
    wrong = credentials(ALICE).proof("dialler", OTHER_WAY[way])
    assert refusal(forged(wrong, ALICE), way) == "identity"
    assert refusal(forged(credentials(ALICE).proof("listener", way), ALICE), way) == "identity"
    bobs = forged(credentials(BOB).proof("listener", OTHER_WAY[way]), BOB)
    a, b = pair(listener=bobs, way=way)
    second = b.receive(a.start())
    with pytest.raises(HandshakeFailed) as caught:
        a.receive(second)
    assert caught.value.reason == "identity"


@pytest.mark.parametrize("label", ["record", "swim", "", "channel/relayed", "Channel"])
@pytest.mark.parametrize("way", WAYS)
def test_a_signature_under_another_label_is_refused(way: Way, label: str) -> None:
    eve = credentials(EVE)
    statement = b"\x00" + public_key(eve.static) + eve.prologues[way]
    signature = EVE.sign(label, statement)
    assert refusal(forged(msgspec.msgpack.encode([EVE.node, signature, 1, 2])), way) == "identity"


def test_no_two_purposes_sign_the_same_words() -> None:
    """Every statement about a static key differs: by role, way, network and version."""
    statements = {
        (role, way, network, major): credentials(ALICE, network, major).proof(role, way)
        for role in ("dialler", "listener")
        for way in WAYS
        for network in ("net", "t", "\x00\x01net")
        for major in (1, 2, 256)
    }
    signatures = {msgspec.msgpack.decode(proof)[1] for proof in statements.values()}
    assert len(signatures) == len(statements) == 36


def test_the_prologue_of_direct_channels_is_what_it_always_was() -> None:
    assert credentials(ALICE).prologues["direct"] == b"diffuse\x00\x01net"
    role: Role = "dialler"
    assert msgspec.msgpack.decode(credentials(ALICE).proof(role, "direct"))[1] == ALICE.sign(
        "channel", b"\x00" + public_key(credentials(ALICE).static) + b"diffuse\x00\x01net"
    )
