"""Messages and whole streams that come again, come back, or come in another order."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from handshake_samples import ALICE, BOB, WAYS, credentials, finish, pair

from diffuse_core.domain.channel import Handshake, HandshakeFailed
from diffuse_core.errors import ChannelClosed

if TYPE_CHECKING:
    from diffuse_core.domain.channel import Way
    from diffuse_core.domain.sealed_stream import SealedStream

pytestmark = pytest.mark.parametrize("way", WAYS)


def recording(way: Way) -> tuple[list[bytes], list[bytes]]:
    """All that each side sent in one talk: the handshake, a frame, a farewell."""
    a, b = pair(way=way)
    first = a.start()
    second = b.receive(first)
    third = a.receive(second)
    b.receive(third)
    near, far = a.session(), b.session()
    return (
        [first, third, near.seal(b"there", 0.0), near.close()],
        [second, far.seal(b"back", 0.0), far.close()],
    )


def fresh(way: Way) -> tuple[Handshake, Handshake]:
    """The same two nodes, later: other ephemeral keys."""
    return (
        Handshake(credentials(ALICE), "dialler", b"\x44" * 32, None, way),
        Handshake(credentials(BOB), "listener", b"\x55" * 32, None, way),
    )


def test_a_dialler_that_is_played_again_gets_no_channel(way: Way) -> None:
    there, _ = recording(way)
    b = fresh(way)[1]
    assert b.receive(there[0]) is not None
    for message in there[1:]:
        with pytest.raises(HandshakeFailed):
            b.receive(message)
    assert not b.done
    with pytest.raises(ChannelClosed):
        b.session()


def test_a_listener_that_is_played_again_gets_no_channel(way: Way) -> None:
    _, back = recording(way)
    a = fresh(way)[0]
    a.start()
    for message in back:
        with pytest.raises(HandshakeFailed):
            a.receive(message)
    assert not a.done


def test_frames_of_an_earlier_talk_are_refused_in_a_later_one(way: Way) -> None:
    there, back = recording(way)
    for message in (*there, *back):
        near, far = finish(*fresh(way))
        for stream in (near, far):
            with pytest.raises(ChannelClosed):
                stream.open(message)


def test_a_message_that_comes_twice_is_refused(way: Way) -> None:
    a, b = pair(way=way)
    first = a.start()
    second = b.receive(first)
    with pytest.raises(HandshakeFailed):
        b.receive(first)
    a, b = pair(way=way)
    third = a.receive(b.receive(a.start()))
    with pytest.raises(HandshakeFailed, match="no place"):
        a.receive(second)
    b.receive(third)
    with pytest.raises(HandshakeFailed, match="no place"):
        b.receive(third)


def test_messages_that_come_back_are_refused(way: Way) -> None:
    for index in range(3):
        a, b = pair(way=way)
        message, sender = a.start(), a
        if index:
            message, sender = b.receive(message), b
        if index == 2:
            message, sender = a.receive(message), a
        with pytest.raises(HandshakeFailed):
            sender.receive(message)
        assert not b.done


def test_a_handshake_reflected_as_another_of_the_same_node_is_refused(way: Way) -> None:
    """Two handshakes that one node runs at once, each fed with what the other said."""
    alice = credentials(ALICE)
    a = Handshake(alice, "dialler", b"\x11" * 32, None, way)
    again = Handshake(alice, "listener", b"\x22" * 32, None, way)
    second = again.receive(a.start())
    with pytest.raises(HandshakeFailed) as caught:
        a.receive(second)
    assert caught.value.reason == "own"
    one, other = (Handshake(alice, "dialler", bytes([n]) * 32, None, way) for n in (1, 2))
    one.start()
    with pytest.raises(HandshakeFailed):
        one.receive(other.start())


def opened(stream: SealedStream, wires: tuple[bytes, ...]) -> list[bytes | None]:
    """What a stream gives of what arrives, until it refuses; after that it gives nothing."""
    found: list[bytes | None] = []
    refused = False
    for wire in wires:
        try:
            found.append(stream.open(wire))
            assert not refused
        except ChannelClosed:
            refused = True
    return found


@pytest.mark.parametrize("direction", [0, 1])
def test_in_whatever_order_frames_come_only_the_right_beginning_is_given(
    way: Way, direction: int
) -> None:
    orders = [
        order
        for size in range(5)
        for order in itertools.product(range(4), repeat=size)
        if size < 4 or len(set(order)) == 4
    ]
    for order in orders:
        sends, gets = finish(*pair(way=way))[:: 1 if direction == 0 else -1]
        frames = [b"1", b"2", b"3"]
        wires = [sends.seal(frame, 0.0) for frame in frames] + [sends.close()]
        good = 0
        while good < len(order) and order[good] == good:
            good += 1
        assert opened(gets, tuple(wires[n] for n in order)) == [*frames, None][:good]
