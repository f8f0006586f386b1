"""Opening a channel, what it refuses, and the frames inside it."""

from __future__ import annotations

import msgspec
import pytest
from handshake_samples import ALICE, BOB, EVE, credentials, finish, forged, pair, refusal

from diffuse_core.domain.channel import (
    Credentials,
    HandshakeFailed,
)
from diffuse_core.domain.noise import public_key
from diffuse_core.domain.sealed_stream import REKEY_S
from diffuse_core.errors import ChannelClosed


def test_both_sides_learn_who_is_there() -> None:
    a, b = pair(expected=BOB.node)
    assert b.start() is None
    assert not a.done
    finish(a, b)
    assert a.done
    assert b.done
    assert a.remote == BOB.node
    assert b.remote == ALICE.node


def test_nothing_is_known_or_opened_before_the_proof() -> None:
    a, b = pair()
    second = b.receive(a.start())
    for side in (a, b):
        with pytest.raises(ChannelClosed, match="not proven"):
            _ = side.remote
        with pytest.raises(ChannelClosed, match="not proven"):
            side.session()
    a.receive(second)
    assert a.done
    assert not b.done


def test_handshake_messages_stay_small() -> None:
    a, b = pair()
    first = a.start()
    second = b.receive(first)
    third = a.receive(second)
    assert max(map(len, (first, second, third))) < 256


@pytest.mark.parametrize("network", ["", "n" * 65, "é" * 33])
def test_network_names_are_bounded(network: str) -> None:
    with pytest.raises(ValueError, match="network"):
        credentials(ALICE, network)


def test_a_node_that_reaches_itself_is_told_so() -> None:
    a, b = pair(credentials(ALICE), credentials(ALICE))
    second = b.receive(a.start())
    with pytest.raises(HandshakeFailed, match="itself") as caught:
        a.receive(second)
    assert caught.value.reason == "own"


def test_another_id_than_expected_is_refused_and_named() -> None:
    a, b = pair(expected=EVE.node)
    second = b.receive(a.start())
    with pytest.raises(HandshakeFailed, match=EVE.node.hex()[:8]) as caught:
        a.receive(second)
    assert caught.value.reason == "unexpected"
    assert not a.done


def test_another_network_is_named_by_the_listener() -> None:
    a, b = pair(credentials(ALICE, "one"), credentials(BOB, "two"))
    with pytest.raises(HandshakeFailed, match="--network") as caught:
        b.receive(a.start())
    assert caught.value.reason == "network"


def test_another_major_version_is_named_by_the_listener() -> None:
    a, b = pair(credentials(ALICE, major=2), credentials(BOB))
    with pytest.raises(HandshakeFailed, match="protocol 2, this one 1") as caught:
        b.receive(a.start())
    assert caught.value.reason == "version"


def test_hiding_the_network_or_version_in_clear_does_not_help() -> None:
    for other in (credentials(ALICE, "two"), credentials(ALICE, major=2)):
        other.hello = credentials(ALICE).hello
        a, b = pair(other)
        second = b.receive(a.start())
        with pytest.raises(HandshakeFailed) as caught:
            a.receive(second)
        assert caught.value.reason == "malformed"


def proof_of(node: bytes, signature: bytes, major: int = 1) -> bytes:
    return msgspec.msgpack.encode([node, signature, major, 0])


def statement(role: bytes, owner: Credentials) -> bytes:
    return role + public_key(owner.static) + owner.prologues["direct"]


def test_proofs_of_other_keys_roles_networks_and_labels_are_refused() -> None:
    eve = credentials(EVE)
    right = statement(b"\x00", eve)
    assert pair(forged(proof_of(EVE.node, EVE.sign("channel", right))))[0].start()
    stolen = credentials(ALICE).proof("dialler", "direct")
    assert refusal(forged(stolen)) == "identity"
    wrong = (
        (ALICE.node, EVE.sign("channel", right)),
        (EVE.node, EVE.sign("record", right)),
        (EVE.node, EVE.sign("channel", statement(b"\x01", eve))),
        (EVE.node, EVE.sign("channel", right + b"2")),
        (EVE.node, EVE.sign("channel", statement(b"\x00", credentials(BOB)))),
        (bytes(32), bytes(64)),
    )
    for node, signature in wrong:
        assert refusal(forged(proof_of(node, signature))) == "identity"


def test_a_listener_cannot_show_the_proof_of_a_dialler() -> None:
    listener = credentials(BOB)
    listener._proofs["listener", "direct"] = listener._proofs["dialler", "direct"]
    a, b = pair(listener=listener)
    second = b.receive(a.start())
    with pytest.raises(HandshakeFailed, match="not proven"):
        a.receive(second)


def test_malformed_proofs_are_refused() -> None:
    signature = EVE.sign("channel", statement(b"\x00", credentials(EVE)))
    for proof in (
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"node": EVE.node}),
        msgspec.msgpack.encode([EVE.node, signature]),
        proof_of(EVE.node[:-1], signature),
        proof_of(EVE.node, signature + b"x"),
        proof_of(EVE.node, signature, major=-1),
    ):
        assert refusal(forged(proof)) == "malformed"
    assert refusal(forged(proof_of(EVE.node, signature, major=2))) == "version"


def test_proofs_of_later_minor_versions_may_say_more() -> None:
    signature = EVE.sign("channel", statement(b"\x00", credentials(EVE)))
    a, b = pair(forged(msgspec.msgpack.encode([EVE.node, signature, 1, 7, "more"])))
    finish(a, b)
    assert b.remote == EVE.node


@pytest.mark.parametrize("hello", [b"", b"\x93\x01\x00\xc4\x01x", b"\x93\x01\x00" + b"\xa1x"])
def test_malformed_greetings_are_refused(hello: bytes) -> None:
    made = credentials(ALICE)
    made.hello = hello
    a, b = pair(made)
    with pytest.raises(HandshakeFailed, match="malformed"):
        b.receive(a.start())


def test_the_session_of_a_handshake_carries_frames_both_ways() -> None:
    a, b = pair()
    finish(a, b)
    near, far = a.session(), b.session()
    for sends, gets in ((near, far), (far, near), (near, far)):
        assert gets.open(sends.seal(b"frame", 0.0)) == b"frame"


def test_keys_are_replaced_for_their_age() -> None:
    near, far = finish(*pair())
    first, late = far.seal(b"", 0.0), far.seal(b"", REKEY_S)
    assert len(late) > len(first)
    assert [near.open(first), near.open(late)] == [b"", b""]
