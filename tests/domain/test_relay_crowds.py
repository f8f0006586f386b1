"""Room of a relay that is short: no one origin keeps the others out, nor ends their circuits."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.relay import (
    HANDSHAKE_FRAMES,
    LARGE,
    Granted,
    Opened,
    RelayBook,
    RelayLimits,
    crowd_to_yield,
)

LIMITS = RelayLimits()
SMALL = RelayLimits(
    reservations=12,
    circuits=24,
    circuits_per_target=16,
    circuits_per_source=4,
    offers_per_target=8,
    opens=1e6,
    reserved_s=100_000,
    idle_s=1e6,
)
EVIL, GOOD = "192.0.2.1", "198.51.100.7"


def node(number: int) -> NodeId:
    return NodeId(number.to_bytes(32))


HOST, OTHER, CLIENT = node(1), node(2), node(3)


class Desk:
    """A book with two Hosts in it, and who has what."""

    def __init__(self, limits: RelayLimits = LIMITS) -> None:
        self.book = RelayBook(limits)
        for number, host in enumerate((HOST, OTHER)):
            self.book.reserve(host, f"203.0.113.{number}", 0.0, serving=True)
        self.names = count(1)
        self.open: dict[bytes, str] = {}

    def circuit(
        self,
        origin: str,
        source: NodeId,
        now: float,
        target: NodeId = HOST,
        *,
        serving: bool = False,
        frames: int = 0,
    ) -> bytes | None:
        """A new one that carried `frames`; None if there is none."""
        name = next(self.names).to_bytes(16)
        answer = self.book.open(name, source, target, now, origin=origin, serving=serving)
        if not isinstance(answer, Opened):
            return None
        if answer.displaced is not None:
            del self.open[answer.displaced]
        assert self.book.join(name, target, now)
        for _ in range(frames):
            self.book.moved(name, now)
        self.open[name] = origin
        return name

    def fill(self, origin: str, *, frames: int = 0, serving: bool = False) -> list[bytes]:
        """All that one origin gets, with as many ids as it likes; 16 circuits for each."""
        targets = (HOST, OTHER)
        made = [
            self.circuit(origin, node(100 + n // 16), 0.0, to, serving=serving, frames=frames)
            for to in targets
            for n in range(200)
        ]
        return [name for name in made if name is not None]


@pytest.mark.parametrize("serving", [False, True])
def test_the_idlest_circuit_of_a_crowd_makes_room_for_another_origin(serving: bool) -> None:
    desk = Desk()
    held = desk.fill(EVIL, serving=serving, frames=9)
    assert len(held) == (96 if serving else 72)
    for number, name in enumerate(held):
        desk.book.moved(name, 1.0 + (number != 7))
    assert desk.circuit(GOOD, CLIENT, 2.0) is not None
    assert held[7] not in desk.open
    assert Counter(desk.open.values()) == {EVIL: len(held) - 1, GOOD: 1}


def test_so_it_is_at_one_target_and_with_offers_that_nobody_took() -> None:
    desk = Desk()
    assert all(desk.circuit(EVIL, node(100 + n // 16), 0.0) for n in range(64))
    assert desk.circuit(EVIL, node(200), 1.0) is None
    assert desk.circuit(GOOD, CLIENT, 1.0) is not None
    offers = RelayBook(LIMITS)
    offers.reserve(HOST, GOOD, 0.0, serving=True)
    for number in range(40):
        source, name = node(100 + number), bytes([number]) * 16
        answer = offers.open(name, source, HOST, 0.0, origin=EVIL, serving=True)
        assert answer == (Opened() if number < 32 else "limit")
    answer = offers.open(b"good", CLIENT, HOST, 0.0, origin=GOOD, serving=False)
    assert answer == Opened(displaced=bytes(16))
    # What was displaced may end in its own time.
    offers.moved(bytes(16), 1.0)
    offers.closed(bytes(16))
    assert not offers.join(bytes(16), HOST, 1.0)


def test_within_one_crowd_only_quiet_circuits_give_way() -> None:
    desk = Desk()
    held = desk.fill(EVIL, frames=9)
    late = LIMITS.quiet_s
    for name in held[1:]:
        desk.book.moved(name, 1.0)
    assert desk.circuit(EVIL, CLIENT, late - 0.1, OTHER) is None
    assert desk.circuit(EVIL, CLIENT, late, HOST, frames=9) is not None
    assert held[0] not in desk.open
    assert desk.circuit(EVIL, CLIENT, late, HOST) is None


@pytest.mark.parametrize("frames", [HANDSHAKE_FRAMES, HANDSHAKE_FRAMES + 1])
def test_circuits_that_only_shook_hands_give_way_whosever_they_are(frames: int) -> None:
    limits = RelayLimits(circuits_per_target=8, reserved_s=1000)
    desk = Desk(limits)
    for number in range(8):
        assert desk.circuit(f"192.0.2.{number}", node(100 + number), 0.0, frames=frames)
    for now, due in ((29.9, False), (30.0, frames == HANDSHAKE_FRAMES)):
        assert (desk.circuit(GOOD, CLIENT, now) is not None) == due


def test_two_crowds_do_not_take_turns_in_displacing_each_other() -> None:
    desk = Desk()
    desk.fill(EVIL, frames=9)
    for number in range(100):
        desk.circuit(GOOD, node(300 + number), 1.0, frames=9)
    assert Counter(desk.open.values()) == {EVIL: 40, GOOD: 32}
    assert desk.circuit(EVIL, node(400), 2.0) is None


@pytest.mark.parametrize("lies", [False, True])
def test_reservations_of_a_crowd_make_room_for_another_origin(lies: bool) -> None:
    book = RelayBook(LIMITS)
    early = [f"203.0.113.{number}" for number in range(60)]
    for number, origin in enumerate(early):
        book.reserve(node(number + 1), origin, 0.0, serving=False)
    for number in range(200):
        book.reserve(node(1000 + number), EVIL, 0.0, serving=lies)
    # It may say that it serves: a large crowd takes no place of others.
    assert book.reserve(node(2000), EVIL, 0.0, serving=False) == "busy"
    last = node(1000 + 192 - 60 - 1)
    assert book.reserve(CLIENT, GOOD, 1.0, serving=False) == Granted(120)
    assert book.reserve(node(500), GOOD, 1.0, serving=False) == Granted(120, displaced=last)
    kept = {book.reserve(node(n + 1), early[n], 1.0, serving=False) for n in range(60)}
    assert kept == {Granted(120)}


def test_nobody_yields_where_no_crowd_is_large() -> None:
    assert crowd_to_yield([], EVIL, 0) is None
    assert crowd_to_yield(["a"] * 3 + ["b"] * 3, EVIL, 12) is None
    assert crowd_to_yield(["a"] * 4 + ["b"] * 3, EVIL, 12) == "a"
    assert crowd_to_yield(["a"] * 4 + ["b"] * 3, "b", 12) == "b"
    assert crowd_to_yield(["a"] * 4 + ["b"] * 3, "a", 12) == "a"
    assert crowd_to_yield(["a"], EVIL, 1) is None


others = st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=8)
deeds = st.lists(
    st.tuples(
        st.sampled_from(["open", "move", "wait", "reserve"]), st.integers(0, 40), st.booleans()
    ),
    max_size=120,
)


@given(others=others, deeds=deeds)
@settings(max_examples=150, deadline=None)
def test_any_one_hostile_origin_keeps_nobody_out(
    others: list[tuple[int, bool]], deeds: list[tuple[str, int, bool]]
) -> None:
    """An origin that has little gets in, and keeps what it uses, whatever another one does."""
    desk, now = Desk(SMALL), 0.0
    honest = [
        desk.circuit(f"203.0.113.{10 + one}", node(20 + one), now, frames=9) for one, _ in others
    ]
    honest = [name for name in honest if name is not None]
    hostile: list[bytes] = []
    for what, which, serving in deeds:
        if what == "open":
            target = HOST if which % 2 else OTHER
            made = desk.circuit(
                EVIL, node(100 + which), now, target, serving=serving, frames=which % 7
            )
            hostile += [] if made is None else [made]
        elif what == "move" and hostile:
            desk.book.moved(hostile[which % len(hostile)], now)
        elif what == "wait":
            now += which
        else:
            desk.book.reserve(node(1000 + which), EVIL, now, serving=serving)
    assert set(honest) <= set(desk.open)
    assert desk.circuit(GOOD, CLIENT, now) is not None
    assert isinstance(desk.book.reserve(CLIENT, GOOD, now, serving=False), Granted)
    for host in (HOST, OTHER):
        assert desk.book.reserve(host, GOOD, now, serving=True) == Granted(SMALL.reserved_s)
    assert SMALL.circuits * LARGE >= 1
