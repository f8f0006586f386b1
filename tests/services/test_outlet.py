"""What a pass gave is sent in the call that brings it, or left to the session's task: as much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from diffuse_core.domain.decoding import DecodingParams, Drawn
from diffuse_core.domain.messages import ForwardHidden, ForwardTokens, RowsRun, TokensDrawn
from diffuse_core.domain.session import PREFILL_ROWS, WINDOW_ROWS, StageSession
from diffuse_core.errors import Refused
from diffuse_core.model_ports import StageResult, Tensor
from diffuse_core.services.stage_outlet import Outlet
from tests.domain.session_samples import MODEL, C, opening

if TYPE_CHECKING:
    from diffuse_core.domain.messages import OpenSession

WIDTH = 8
Sent = tuple[str, object, bytes]


class Wire:
    """Stands for a Link; keeps what is sent at once, soon, and by a task that waits."""

    closed = False

    def __init__(self) -> None:
        self.free = True
        self.sent: list[Sent] = []

    def idle(self, size: int) -> bool:
        return self.free and size < 16_000

    def send_now(self, message: object, body: bytes = b"", *, soon: bool = False) -> None:
        assert self.free
        self.sent.append(("soon" if soon else "now", message, bytes(body)))

    async def send(self, message: object, body: bytes = b"") -> None:
        self.sent.append(("waited", message, bytes(body)))

    def take(self) -> list[Sent]:
        sent, self.sent = self.sent, []
        return sent


class Ring:
    """Stands for an Intake: takes the tokens that go round where there is but one Stage."""

    def __init__(self) -> None:
        self.came: list[Any] = []
        self.full = False

    def ring(self, tokens: Any) -> None:
        if self.full:
            raise Refused("too many rows wait at this stage")
        self.came.append(tokens)


class Place:
    """An Outlet of a Stage, with wires to its neighbours and its Client."""

    def __init__(self, message: OpenSession, *, alone: bool = False) -> None:
        self.state = StageSession(message, 1, client=C)
        self.client, self.next, self.source, self.ring = Wire(), Wire(), Wire(), Ring()
        self.outlet = Outlet(MODEL, self.state, self.ring, self.client, None)
        self.outlet.next = None if alone else self.next
        self.outlet.source = self.source
        self.outlet.flowing = True

    def ran(self, rows: int = 1, token: int | None = None, *, soon: bool = False) -> bool:
        """The next rows came and had their pass."""
        position = self.state.received
        self.state.take_rows(position, rows)
        hidden = None
        if not self.state.is_last:
            hidden = Tensor("fp32", (rows, WIDTH), bytes([position % 256]) * rows * WIDTH * 4)
        drawn = () if token is None else (Drawn(token),)
        return self.outlet.at_once(StageResult(hidden, drawn, 0.001), soon=soon)


def first(**changes: Any) -> Place:
    return Place(opening(**{"budget": 4096, **changes}))


def last(*, alone: bool = False, **changes: Any) -> Place:
    many = DecodingParams(max_tokens=1000)
    plain = {"index": 1, "budget": 4096, "decoding": many, "credits": 1000, **changes}
    return Place(opening(**plain), alone=alone)


# --- on to the next Stage -------------------------------------------------------------------


@pytest.mark.parametrize("soon", [False, True])
async def test_rows_go_on_in_the_call_that_brings_them(soon: bool) -> None:
    place = first()
    assert place.ran(5)
    assert place.ran(soon=soon)
    name = place.state.name
    (_, prompt, _), (how, row, body) = place.next.take()
    assert prompt == ForwardHidden(name, 0, 5, (), 0, b"")
    assert (how, row) == ("soon" if soon else "now", ForwardHidden(name, 5, 1, (), 0, b""))
    assert body == bytes([5]) * WIDTH * 4
    await place.outlet.flow()
    assert place.next.take() == []


async def test_what_cannot_leave_at_once_is_left_to_the_task() -> None:
    place = first()
    place.ran(5)
    place.next.take()
    place.next.free = False
    assert not place.ran()
    assert place.next.take() == []
    await place.outlet.flow()
    ((how, message, _),) = place.next.take()
    assert (how, message.position, message.rows) == ("waited", 5, 1)
    place.next.free = True
    assert place.ran()
    assert [message.position for _, message, _ in place.next.take()] == [6]


async def test_rows_that_the_next_stage_has_no_room_for_are_left_to_the_task() -> None:
    place = first(prompt=1)
    for _ in range(WINDOW_ROWS):
        assert place.ran()
    assert not place.ran()
    place.state.count_ran_after(WINDOW_ROWS)
    place.next.take()
    await place.outlet.flow()
    assert [message.position for _, message, _ in place.next.take()] == [WINDOW_ROWS]


async def test_nothing_is_sent_while_the_session_is_paused_and_nothing_is_left_to_do() -> None:
    place = first()
    place.ran(5)
    place.next.take()
    place.outlet.pause()
    assert place.ran()
    assert place.next.take() == []
    place.outlet.resume(5)
    await place.outlet.flow()
    assert [message.position for _, message, _ in place.next.take()] == [5]


async def test_the_stage_before_is_told_by_the_task_what_was_run() -> None:
    place = last(prompt=1)
    assert place.ran(token=3)
    done = [place.ran(token=3) for _ in range(PREFILL_ROWS - 1)]
    assert done == [True] * (PREFILL_ROWS - 2) + [False]
    await place.outlet.flow()
    assert place.source.take() == [("waited", RowsRun(place.state.name, PREFILL_ROWS), b"")]
    assert place.ran(token=3)


# --- round the ring and to the Client -------------------------------------------------------


async def test_a_token_goes_round_the_ring_at_once_and_to_the_client_soon() -> None:
    place = last()
    assert place.ran(5, token=7)
    assert place.next.take() == [("now", ForwardTokens(place.state.name, 5, (7,)), b"")]
    assert place.client.take() == [("soon", TokensDrawn(place.state.id, 5, (7,)), b"")]


async def test_a_client_that_reads_no_more_does_not_hold_up_the_ring() -> None:
    place = last()
    place.client.free = False
    assert not place.ran(5, token=7)
    assert [message.tokens for _, message, _ in place.next.take()] == [(7,)]
    assert not place.ran(token=8)
    await place.outlet.flow()
    assert [message.tokens for _, message, _ in place.client.take()] == [(7, 8)]


async def test_a_token_that_cannot_go_round_at_once_is_left_to_the_task() -> None:
    place = last()
    place.next.free = False
    assert not place.ran(5, token=7)
    assert place.client.take() == []
    await place.outlet.flow()
    assert [message.tokens for _, message, _ in place.next.take()] == [(7,)]
    assert [message.tokens for _, message, _ in place.client.take()] == [(7,)]


async def test_without_credit_nothing_goes_round_and_the_client_is_told_all_the_same() -> None:
    place = last(credits=1)
    assert place.ran(5, token=7)
    assert place.next.take() == []
    assert [message.tokens for _, message, _ in place.client.take()] == [(7,)]


async def test_where_one_stage_is_all_of_the_ring_its_tokens_are_there_at_once() -> None:
    place = last(alone=True)
    assert place.ran(5, token=7)
    assert [(one.position, one.tokens) for one in place.ring.came] == [(5, (7,))]
    place.ring.full = True
    with pytest.raises(Refused, match="too many rows"):
        place.ran(token=8)
    # What was drawn is told before all ends.
    assert [message.tokens for _, message, _ in place.client.take()] == [(7,), (8,)]


async def test_what_is_not_due_is_refused() -> None:
    place = first()
    place.state.take_rows(0, 5)
    with pytest.raises(Refused, match="no hidden states"):
        place.outlet.at_once(StageResult(None, (), 0.001), soon=False)
    assert place.next.take() == []
