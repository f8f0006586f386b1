"""The key of a private network, and what a handshake with one shows to whoever has none."""

from __future__ import annotations

import msgspec
import pytest

from diffuse_core.domain.channel import Credentials, Handshake, HandshakeFailed, network_tag
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.network_key import derive_key

ALICE, BOB = (Identity(bytes([i]) * 32) for i in (1, 2))
KEY, OTHER = b"k" * 32, b"o" * 32


def credentials(identity: Identity, key: bytes | None = KEY, network: str = "net") -> Credentials:
    return Credentials(identity, network, identity.seed[:-1] + b"\x50", key=key)


def pair(one: bytes | None, other: bytes | None) -> tuple[Handshake, Handshake]:
    return (
        Handshake(credentials(ALICE, one), "dialler", b"\x11" * 32),
        Handshake(credentials(BOB, other), "listener", b"\x22" * 32),
    )


def test_the_key_depends_on_the_secret_and_on_the_network() -> None:
    made = derive_key("net", "secret")
    assert len(made) == 32
    assert derive_key("net", "secret") == made
    assert len({made, derive_key("ten", "secret"), derive_key("net", "secreT")}) == 3


@pytest.mark.parametrize("secret", ["", "s" * 1025])
def test_secrets_are_bounded(secret: str) -> None:
    with pytest.raises(ValueError, match="1 to 1024 bytes"):
        derive_key("net", secret)


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        credentials(ALICE, b"short")


def test_both_sides_with_the_key_learn_who_is_there_and_talk() -> None:
    a, b = pair(KEY, KEY)
    assert b.receive(a.receive(b.receive(a.start()))) is None
    assert (a.remote, b.remote) == (BOB.node, ALICE.node)
    near, far = a.session(), b.session()
    assert far.open(near.seal(b"there", 0.0)) == b"there"
    assert near.open(far.seal(b"back", 0.0)) == b"back"


@pytest.mark.parametrize(
    ("one", "other", "reason", "word"),
    [
        (None, KEY, "keyed", "this network has one; give it the same --network-key"),
        (KEY, None, "keyless", "this one none; give both the same --network-key"),
    ],
)
def test_a_key_on_one_side_only_is_named_by_the_listener_before_it_answers(
    one: bytes | None, other: bytes | None, reason: str, word: str
) -> None:
    a, b = pair(one, other)
    with pytest.raises(HandshakeFailed, match=word) as caught:
        b.receive(a.start())
    assert caught.value.reason == reason


def test_another_key_is_named_by_the_dialler_who_sends_nothing_more() -> None:
    a, b = pair(KEY, OTHER)
    second = b.receive(a.start())
    with pytest.raises(HandshakeFailed, match="another network key") as caught:
        a.receive(second)
    assert caught.value.reason == "key"
    assert not a.done


def test_another_network_is_named_first() -> None:
    a = Handshake(credentials(ALICE, KEY, "other"), "dialler", b"\x11" * 32)
    with pytest.raises(HandshakeFailed) as caught:
        pair(KEY, KEY)[1].receive(a.start())
    assert caught.value.reason == "network"


def test_nobody_without_the_key_is_shown_an_id_or_a_signature() -> None:
    """A stranger who speaks XXpsk2 with a guess gets a message it cannot open."""
    a, b = pair(OTHER, KEY)
    second = b.receive(a.start())
    payload = a._noise
    with pytest.raises(HandshakeFailed):
        a.receive(second)
    assert not a.done
    assert BOB.node not in second
    assert payload.remote_static  # This much is shown: a key that lives as long as the process.


def test_what_is_shown_in_clear_does_not_depend_on_the_key() -> None:
    one, other = pair(KEY, KEY)[0].start(), pair(OTHER, KEY)[0].start()
    assert one == other
    assert credentials(ALICE, KEY).tag == credentials(ALICE, None).tag == network_tag("net")


def test_a_greeting_that_says_two_things_is_refused() -> None:
    a, b = pair(KEY, KEY)
    first = a.start()
    clear = msgspec.msgpack.decode(first[32:])
    clear[1] += 1
    with pytest.raises(HandshakeFailed, match="greeting was changed"):
        b.receive(first[:32] + msgspec.msgpack.encode(clear))
