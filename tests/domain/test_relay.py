"""The book of a relay: who may reserve, open and join, and that all is given back."""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.relay import Granted, Opened, RelayBook, RelayLimits
from diffuse_core.domain.view import RelayFigures

if TYPE_CHECKING:
    from diffuse_core.domain.relay_messages import RelayProblem

SMALL = RelayLimits(
    reservations=3,
    circuits=8,
    circuits_per_target=4,
    circuits_per_source=3,
    offers_per_target=2,
    opens=1000.0,
    reserved_s=30,
    regain_s=4.0,
    join_s=2.0,
    idle_s=20.0,
)


def node(number: int) -> NodeId:
    return NodeId(bytes([number]) * 32)


def place(one: NodeId) -> str:
    """Where it comes from: each from somewhere else."""
    return f"192.0.2.{one[0]}"


def name(number: int) -> bytes:
    return number.to_bytes(16)


A, B, C, D, E = map(node, range(1, 6))


def book(limits: RelayLimits = SMALL, *, reserved: tuple[NodeId, ...] = ()) -> RelayBook:
    made = RelayBook(limits)
    for one in reserved:
        assert made.reserve(one, place(one), 0.0, serving=False) == Granted(limits.reserved_s)
    return made


def ask(
    made: RelayBook,
    number: int,
    source: NodeId,
    target: NodeId,
    now: float = 0.0,
    *,
    serving: bool = True,
) -> Opened | RelayProblem:
    return made.open(name(number), source, target, now, origin=place(source), serving=serving)


def opened(made: RelayBook, number: int, source: NodeId, target: NodeId) -> bytes:
    assert ask(made, number, source, target) == Opened()
    return name(number)


def joined(made: RelayBook, number: int, source: NodeId, target: NodeId) -> bytes:
    circuit = opened(made, number, source, target)
    assert made.join(circuit, target, 0.0)
    return circuit


def test_an_empty_book_waits_for_nothing() -> None:
    made = book()
    assert made.next_deadline() == math.inf
    assert made.tick(1e9) == ()
    assert made.figures(7) == RelayFigures(0, 0, 7)


def test_a_reservation_is_renewed_and_runs_out() -> None:
    made = book(reserved=(A,))
    assert made.reserve(A, place(A), 20.0, serving=False) == Granted(30)
    assert made.next_deadline() == 50.0
    made.tick(49.9)
    assert made.figures(0).reservations == 1
    made.tick(50.0)
    assert made.figures(0).reservations == 0
    assert ask(made, 1, B, A, 51.0) == "unknown"


def test_nothing_is_opened_at_the_very_end_of_a_reservation() -> None:
    made = book(reserved=(A,))
    assert ask(made, 1, B, A, 30.0) == "unknown"


def test_a_node_that_serves_takes_the_place_of_the_last_that_does_not() -> None:
    made = book()
    for one, serves in ((A, False), (B, False), (C, True)):
        made.reserve(one, place(one), 0.0, serving=serves)
    assert made.reserve(D, place(D), 1.0, serving=False) == "busy"
    assert made.reserve(D, place(D), 1.0, serving=True) == Granted(30, displaced=B)
    assert ask(made, 1, E, B, 1.0) == "unknown"
    assert made.reserve(B, place(B), 1.0, serving=True) == Granted(30, displaced=A)
    assert made.reserve(E, place(E), 1.0, serving=True) == "busy"
    assert made.reserve(C, place(C), 2.0, serving=False) == Granted(30)
    assert made.reserve(E, place(E), 2.0, serving=True) == Granted(30, displaced=C)


def test_a_release_leaves_circuits_alone() -> None:
    made = book(reserved=(A,))
    joined(made, 1, B, A)
    made.release(A)
    made.release(A)
    assert ask(made, 2, C, A) == "unknown"
    assert made.tick(19.9) == ()


def test_a_lost_link_ends_circuits_unless_the_node_comes_back() -> None:
    made = book(reserved=(A, B))
    circuit = joined(made, 1, C, A)
    other = joined(made, 2, C, B)
    for one in (A, B, D):
        made.link_ended(one, 10.0)
    assert ask(made, 3, C, A, 10.0) == "unknown"
    assert made.reserve(B, place(B), 12.0, serving=False) == Granted(30)
    assert made.next_deadline() == 14.0
    assert made.tick(14.0) == (circuit,)
    assert made.tick(15.0) == ()
    assert made.figures(0) == RelayFigures(1, 2, 0)
    made.closed(circuit)
    made.closed(other)
    assert made.figures(0).circuits == 0


def test_a_link_that_ends_late_lengthens_nothing() -> None:
    made = book(reserved=(A,))
    made.link_ended(A, 29.0)
    made.tick(30.0)
    assert made.figures(0).reservations == 0


@pytest.mark.parametrize("target", [A, D])
def test_there_is_no_circuit_to_oneself_nor_to_who_did_not_reserve(target: NodeId) -> None:
    assert ask(book(reserved=(A,)), 1, A, target) == "unknown"


def test_an_offer_is_taken_once_in_time_by_whom_it_was_made_to() -> None:
    made = book(reserved=(A, B))
    circuit = opened(made, 1, C, A)
    assert not made.join(circuit, B, 0.0)
    assert not made.join(circuit, C, 0.0)
    assert not made.join(name(9), A, 0.0)
    assert not made.join(circuit, A, 2.0)
    assert made.join(circuit, A, 1.9)
    assert not made.join(circuit, A, 1.9)
    assert not made.decline(circuit, A)


def test_an_offer_that_was_declined_or_ran_out_is_not_taken() -> None:
    made = book(reserved=(A,))
    circuit, late = opened(made, 1, C, A), opened(made, 2, C, A)
    assert not made.decline(circuit, B)
    assert made.decline(circuit, A)
    assert not made.decline(circuit, A)
    assert not made.join(circuit, A, 0.0)
    assert made.tick(2.0) == (late,)
    assert not made.join(late, A, 1.0)


def test_an_idle_circuit_ends_and_a_busy_one_does_not() -> None:
    made = book(reserved=(A,))
    idle, busy = joined(made, 1, B, A), joined(made, 2, C, A)
    made.moved(busy, 15.0)
    assert made.next_deadline() == 20.0
    assert made.tick(20.0) == (idle,)
    assert made.next_deadline() == 30.0
    made.reserve(A, place(A), 29.0, serving=False)
    assert made.tick(35.0) == (busy,)


def test_a_node_has_so_many_circuits_and_offers() -> None:
    made = book(reserved=(A, B, C))
    opened(made, 1, D, A)
    opened(made, 2, E, A)
    assert ask(made, 3, D, A) == "limit"
    made.join(name(1), A, 0.0)
    made.join(name(2), A, 0.0)
    joined(made, 3, D, A)
    joined(made, 4, C, A)
    assert ask(made, 5, C, A) == "limit"
    opened(made, 5, D, B)
    assert ask(made, 6, D, C) == "limit"
    made.closed(name(5))
    opened(made, 6, D, C)


def test_the_last_circuits_are_kept_for_nodes_that_serve() -> None:
    made = book(RelayLimits(circuits=8, offers_per_target=9), reserved=(A,))
    for number in range(6):
        assert ask(made, number, node(20 + number), A, serving=False) == Opened()
    assert ask(made, 6, D, A, serving=False) == "busy"
    for number in (6, 7):
        opened(made, number, D, A)
    assert ask(made, 8, E, A) == "busy"
    made.closed(name(0))
    opened(made, 8, E, A)


def test_nodes_ask_so_often_and_not_for_everybody() -> None:
    made = book(RelayLimits(opens=2.0, opens_per_s=1.0), reserved=(A,))
    asks = [ask(made, n, B, node(50 + n)) for n in range(3)]
    assert asks == ["unknown", "unknown", "limit"]
    assert ask(made, 4, C, A) == Opened()
    assert ask(made, 5, B, A, 1.0) == Opened()


def test_the_defaults_leave_a_quarter_of_a_port_to_others() -> None:
    limits = RelayLimits()
    assert limits.reservations + 2 * limits.circuits <= 0.75 * 512
    assert limits.circuits_per_source < limits.circuits_per_target < limits.circuits


nodes = st.sampled_from([A, B, C, D, E])


def crowd(one: NodeId) -> str:
    """Three come from one place and two from another."""
    return "here" if one in (A, B, C) else "there"


class AnyBook(RuleBasedStateMachine):
    """Whatever nodes do, limits hold, and nobody joins what was not offered to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.book = RelayBook(SMALL)
        self.names = count()
        self.reserved: set[NodeId] = set()
        self.parts: dict[bytes, tuple[NodeId, NodeId]] = {}
        self.offered: dict[bytes, float] = {}
        self.moved: dict[bytes, float] = {}
        self.ending: set[bytes] = set()

    @rule(one=nodes, serving=st.booleans())
    def reserve(self, one: NodeId, serving: bool) -> None:
        answer = self.book.reserve(one, crowd(one), self.now, serving=serving)
        if isinstance(answer, Granted):
            assert answer.displaced is None or serving or crowd(one) != crowd(answer.displaced)
            self.reserved.discard(answer.displaced or b"")
            self.reserved.add(one)
        else:
            assert one not in self.reserved

    @rule(one=nodes)
    def lose(self, one: NodeId) -> None:
        self.book.link_ended(one, self.now)

    @rule(one=nodes)
    def release(self, one: NodeId) -> None:
        self.book.release(one)
        self.reserved.discard(one)

    @rule(source=nodes, to=nodes, serving=st.booleans())
    def open(self, source: NodeId, to: NodeId, serving: bool) -> None:
        circuit = name(next(self.names))
        answer = self.book.open(
            circuit, source, to, self.now, origin=crowd(source), serving=serving
        )
        if isinstance(answer, Opened):
            if answer.displaced is not None:
                self.close(answer.displaced)
            else:
                assert serving or len(self.parts) < 6
            assert to in self.reserved
            self.parts[circuit] = (source, to)
            self.offered[circuit] = self.now

    @precondition(lambda self: self.parts)
    @rule(data=st.data(), one=nodes)
    def join(self, data: st.DataObject, one: NodeId) -> None:
        circuit = data.draw(st.sampled_from(sorted(self.parts)))
        due = (
            circuit not in self.ending
            and self.parts[circuit][1] == one
            and self.now < self.offered.get(circuit, -math.inf) + SMALL.join_s
        )
        assert self.book.join(circuit, one, self.now) == due
        if due:
            del self.offered[circuit]
            self.moved[circuit] = self.now

    @precondition(lambda self: self.parts)
    @rule(data=st.data(), one=nodes)
    def decline(self, data: st.DataObject, one: NodeId) -> None:
        circuit = data.draw(st.sampled_from(sorted(self.parts)))
        if self.book.decline(circuit, one):
            assert circuit in self.offered
            assert self.parts[circuit][1] == one
            self.ending.add(circuit)

    @precondition(lambda self: self.moved)
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        circuit = data.draw(st.sampled_from(sorted(self.moved)))
        self.book.moved(circuit, self.now)
        self.moved[circuit] = self.now

    @precondition(lambda self: self.parts)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.close(data.draw(st.sampled_from(sorted(self.parts))))

    def close(self, circuit: bytes) -> None:
        self.book.closed(circuit)
        for table in (self.parts, self.offered, self.moved):
            table.pop(circuit, None)
        self.ending.discard(circuit)

    @rule(passed=st.sampled_from([0.5, 2.0, 5.0, 40.0]))
    def wait(self, passed: float) -> None:
        self.now += passed
        told = self.book.tick(self.now)
        assert len(set(told)) == len(told)
        assert self.ending.isdisjoint(told)
        assert set(told) <= set(self.parts)
        self.ending |= set(told)
        assert self.book.next_deadline() > self.now
        live = set(self.parts) - self.ending
        assert all(self.now < self.moved[one] + SMALL.idle_s for one in live & set(self.moved))
        assert all(self.now < self.offered[one] + SMALL.join_s for one in live & set(self.offered))
        self.reserved &= set(self.book._reservations)

    @invariant()
    def within_limits(self) -> None:
        figures = self.book.figures(0)
        assert figures.reservations <= SMALL.reservations
        assert figures.circuits == len(self.parts) <= SMALL.circuits
        for one in (A, B, C, D, E):
            assert sum(one == source for source, _ in self.parts.values()) <= 3
            assert sum(one == to for _, to in self.parts.values()) <= 4
            offers = [self.parts[circuit] for circuit in self.offered]
            assert sum(one == to for _, to in offers) <= 2

    def teardown(self) -> None:
        for circuit in list(self.parts):
            self.book.closed(circuit)
        self.book.tick(self.now + 1000.0)
        assert self.book.figures(0) == RelayFigures(0, 0, 0)
        assert self.book.next_deadline() == math.inf


TestAnyBook = AnyBook.TestCase
TestAnyBook.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
