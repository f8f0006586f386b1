"""Keys of low order, with which the other side alone would fix what is agreed on."""

from __future__ import annotations

import pytest
from handshake_samples import ALICE, BOB, credentials, pair, show

from diffuse_core.domain.channel import HandshakeFailed
from tests.domain.test_noise import LOW_ORDER

# X25519 ignores the top bit, so each exists twice.
TWICE = [key[:31] + bytes([key[31] | top]) for key in LOW_ORDER for top in (0, 0x80)]
P = 2**255 - 19
# On the usual list too, but of low order only for an implementation that keeps the top bit.
UNMASKED = [
    number.to_bytes(32, "little")
    for number in (
        2 * P - 1,
        2 * P,
        2 * P + 1,
        int.from_bytes(LOW_ORDER[2], "little") + P,
        int.from_bytes(LOW_ORDER[3], "little") + P,
    )
]
KEY = b"k" * 32


@pytest.mark.parametrize("key", TWICE, ids=bytes.hex)
@pytest.mark.parametrize("psk", [None, KEY], ids=["open", "keyed"])
class TestLowOrder:
    def test_as_the_diallers_ephemeral(self, key: bytes, psk: bytes | None) -> None:
        a, b = pair(credentials(ALICE, key=psk), credentials(BOB, key=psk))
        show(a, e=key)
        with pytest.raises(HandshakeFailed, match="low order"):
            b.receive(a.start())
        assert not b.done

    def test_as_the_listeners_ephemeral(self, key: bytes, psk: bytes | None) -> None:
        a, b = pair(credentials(ALICE, key=psk), credentials(BOB, key=psk))
        show(b, e=key)
        second = b.receive(a.start())
        with pytest.raises(HandshakeFailed, match="low order"):
            a.receive(second)
        assert not a.done

    def test_as_the_diallers_static(self, key: bytes, psk: bytes | None) -> None:
        a, b = pair(credentials(ALICE, key=psk), credentials(BOB, key=psk))
        show(a, s=key)
        third = a.receive(b.receive(a.start()))
        with pytest.raises(HandshakeFailed, match="low order"):
            b.receive(third)
        assert not b.done

    def test_as_the_listeners_static(self, key: bytes, psk: bytes | None) -> None:
        a, b = pair(credentials(ALICE, key=psk), credentials(BOB, key=psk))
        show(b, s=key)
        second = b.receive(a.start())
        with pytest.raises(HandshakeFailed, match="low order"):
            a.receive(second)
        assert not a.done


@pytest.mark.parametrize("key", UNMASKED, ids=bytes.hex)
def test_keys_that_some_implementations_would_take_for_them_lead_nowhere(key: bytes) -> None:
    a, b = pair()
    second = b.receive(key + a.start()[32:])
    with pytest.raises(HandshakeFailed):
        a.receive(second)
    a, b = pair()
    second = b.receive(a.start())
    with pytest.raises(HandshakeFailed):
        a.receive(key + second[32:])
    assert not a.done
    assert not b.done
