"""The book of a relaying sentinel: any order of what nodes ask, at any time."""

from __future__ import annotations

import math
from enum import IntEnum

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.relay import Granted, Opened, RelayBook, RelayLimits
from tests.fuzz.script import script, steps

SCRIPT = True
LIMITS = RelayLimits(
    reservations=3,
    circuits=6,
    circuits_per_target=4,
    circuits_per_source=3,
    offers_per_target=2,
    opens=12.0,
    reserved_s=30,
    regain_s=4.0,
    join_s=2.0,
    idle_s=20.0,
)


class Step(IntEnum):
    """What happens next."""

    RESERVE = 0
    RELEASE = 1
    LINK_ENDED = 2
    OPEN = 3
    JOIN = 4
    DECLINE = 5
    MOVED = 6
    CLOSED = 7
    WAIT = 8


_KINDS = 16
_NODES = tuple(NodeId(bytes([number]) * 32) for number in range(1, 9))
_NAMES = tuple(bytes([number]) * 16 for number in range(12))


def _origin(node: NodeId) -> str:
    """Half of the nodes come from one place, the others each from somewhere else."""
    return str(min(_NODES.index(node), 4))


class _Desk:
    """The book, and what a relay that heeds its rules knows beside it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.book = RelayBook(LIMITS)
        self.there: dict[bytes, bool] = {}
        """Circuits that are not closed; whether they were joined."""
        self.ended: set[bytes] = set()

    def take(self, kind: int, who: int, argument: bytes) -> None:
        node = _NODES[who % len(_NODES)]
        first, second = (*argument[:2], 0, 0)[:2]
        name = _NAMES[second % len(_NAMES)]
        match kind:
            case Step.RESERVE:
                granted = self.book.reserve(node, _origin(node), self.now, serving=bool(first & 1))
                assert granted == "busy" or isinstance(granted, Granted)
            case Step.RELEASE:
                self.book.release(node)
            case Step.LINK_ENDED:
                self.book.link_ended(node, self.now)
            case Step.WAIT:
                self.now += (first + 256 * second) / 100
                self.tick()
            case Step.OPEN:
                self.open(name, node, first)
            case _:
                self.on_circuit(kind, name, node)

    def on_circuit(self, kind: int, name: bytes, node: NodeId) -> None:
        offered = self.there.get(name) is False and name not in self.ended
        if kind == Step.JOIN and self.book.join(name, node, self.now):
            assert offered
            self.there[name] = True
        elif kind == Step.DECLINE and self.book.decline(name, node):
            assert offered
            self.ended.add(name)
        elif kind == Step.MOVED and self.there.get(name):
            self.book.moved(name, self.now)
        elif kind == Step.CLOSED and name in self.there:
            self.close(name)

    def open(self, name: bytes, source: NodeId, which: int) -> None:
        if name in self.there:
            return
        target = _NODES[which // 2 % len(_NODES)]
        answer = self.book.open(
            name, source, target, self.now, origin=_origin(source), serving=bool(which & 1)
        )
        assert isinstance(answer, Opened) or answer in ("unknown", "busy", "limit")
        if isinstance(answer, Opened):
            assert source != target
            if answer.displaced is not None:
                self.close(answer.displaced)
            self.there[name] = False

    def close(self, name: bytes) -> None:
        self.book.closed(name)
        del self.there[name]
        self.ended.discard(name)

    def tick(self) -> None:
        for name in self.book.tick(self.now):
            assert name in self.there
            assert name not in self.ended
            self.ended.add(name)
        assert self.book.next_deadline() > self.now

    def check(self) -> None:
        figures = self.book.figures(0)
        assert figures.reservations <= LIMITS.reservations
        assert figures.circuits == len(self.there) <= LIMITS.circuits

    def leave(self) -> None:
        """All is given back when all are gone."""
        self.now += 10 * LIMITS.reserved_s
        self.tick()
        assert self.ended == set(self.there)
        for name in tuple(self.there):
            self.close(name)
        assert self.book.figures(0).circuits == 0
        assert self.book.figures(0).reservations == 0
        assert self.book.next_deadline() == math.inf


def target(data: bytes) -> str:
    """Within its limits, each circuit ends once, and nothing is left of those that went."""
    desk = _Desk()
    most = 0
    for number, argument in steps(data):
        desk.take(number % _KINDS, number // _KINDS, argument)
        desk.check()
        most = max(most, len(desk.there))
    figures = desk.book.figures(0)
    desk.leave()
    return f"{figures.reservations} reservations, up to {most} circuits"


def _said(kind: int, who: int = 0, first: int = 0, second: int = 0) -> tuple[int, bytes]:
    return kind + _KINDS * who, bytes([first, second])


def samples() -> dict[str, bytes]:
    """A circuit's life, and what may go wrong in it."""
    begin = [_said(Step.RESERVE, 0), _said(Step.OPEN, 1, 0, 0), _said(Step.JOIN, 0, 0, 0)]
    crowd = [_said(Step.RESERVE, who, who & 1) for who in range(6)]
    opens = [_said(Step.OPEN, who % 8, (who % 3) * 2, who) for who in range(12)]
    return {
        "life": script(*begin, _said(Step.MOVED), _said(Step.WAIT, 0, 255, 1), _said(Step.CLOSED)),
        "declined": script(*begin[:2], _said(Step.DECLINE), _said(Step.JOIN), _said(Step.CLOSED)),
        "late": script(*begin[:2], _said(Step.WAIT, 0, 255, 0), begin[2], _said(Step.CLOSED)),
        "lost": script(*begin, _said(Step.LINK_ENDED), _said(Step.WAIT, 0, 0, 2), *begin),
        "released": script(*begin, _said(Step.RELEASE), *begin[1:], _said(Step.WAIT, 0, 0, 12)),
        "crowd": script(
            *crowd, *opens, _said(Step.WAIT, 0, 10, 0), *opens, _said(Step.CLOSED, 0, 0, 3)
        ),
    }
