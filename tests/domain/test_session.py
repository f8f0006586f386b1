from __future__ import annotations

from typing import Any

import msgspec
import pytest

from diffuse_core.domain.decoding import DecodingParams
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import Hop, OpenSession
from diffuse_core.domain.records import ModelRef
from diffuse_core.domain.session import (
    MAX_SESSIONS,
    PREFILL_ROWS,
    WINDOW_ROWS,
    StageSession,
    StageTerms,
    admit,
)
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import Refused

A, B = NodeId(b"a" * 32), NodeId(b"b" * 32)
SHAPE = ModelShape(
    layers=6, hidden=8, vocab=32, context=64, layer_bytes=100, embedding_bytes=50, head_bytes=50,
    kv_bytes=10,
)  # fmt: skip
MODEL = ModelRef(id="m", fingerprint="0" * 64, contract="fp32", shape=SHAPE, bundle="1" * 64)
ROUTE = (Hop(A, ("127.0.0.1:1",), Slice(0, 4)), Hop(B, ("127.0.0.1:2",), Slice(4, 6)))


def opening(**changes: Any) -> OpenSession:
    plain = OpenSession(
        session=b"s" * 16,
        model="m",
        fingerprint=MODEL.fingerprint,
        route=ROUTE,
        index=0,
        budget=20,
        prompt=5,
        decoding=DecodingParams(max_tokens=10, stop_ids=(2,)),
        credits=2,
    )
    return msgspec.structs.replace(plain, **changes)


def terms(**changes: Any) -> StageTerms:
    values = {
        "own": A, "model": MODEL, "held": Slice(0, 4), "kv_used": 0, "kv_budget": 800,
        "sessions": 0,
    }  # fmt: skip
    return StageTerms(**{**values, **changes})


def test_a_session_that_fits_is_admitted_with_its_kv() -> None:
    assert admit(opening(), terms()) == 4 * 20 * 10


@pytest.mark.parametrize(
    ("change", "offer", "reason"),
    [
        ({"route": ROUTE[1:]}, {}, "invalid"),
        ({"route": ROUTE[:1]}, {}, "invalid"),
        ({"route": (ROUTE[0], msgspec.structs.replace(ROUTE[1], node=A))}, {}, "invalid"),
        ({"index": 2}, {}, "invalid"),
        ({"prompt": 20}, {}, "invalid"),
        ({"fingerprint": "2" * 64}, {}, "model"),
        ({}, {"own": B}, "slice"),
        ({}, {"held": Slice(0, 3)}, "slice"),
        ({"budget": 65}, {}, "context"),
        ({}, {"leaving": True}, "leaving"),
        ({}, {"kv_budget": 1}, "memory"),
        ({}, {"sessions": MAX_SESSIONS}, "busy"),
        ({}, {"kv_used": 1}, "memory"),
    ],
)
def test_what_cannot_run_is_refused_with_its_reason(
    change: dict[str, Any], offer: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Refused) as refusal:
        admit(opening(**change), terms(**offer))
    assert refusal.value.reason == reason


def test_stages_know_their_neighbours() -> None:
    first, last = StageSession(opening()), StageSession(opening(index=1))
    assert first.is_first
    assert not first.is_last
    assert first.before is None
    assert first.after == ROUTE[1]
    assert last.is_last
    assert last.before == ROUTE[0]
    assert last.after is None
    assert (last.ring, last.tail) == ROUTE


def test_rows_come_in_order_and_within_the_budget() -> None:
    session = StageSession(opening())
    session.take_rows(0, 5)
    with pytest.raises(Refused, match="position 4"):
        session.take_rows(4, 1)
    with pytest.raises(Refused, match="budget"):
        session.take_rows(5, 16)
    session.take_rows(5, 15)
    assert session.received == 20


def later_stage(**changes: Any) -> StageSession:
    return StageSession(opening(index=1, budget=4 * WINDOW_ROWS, **changes))


def test_only_so_many_rows_may_wait_at_a_stage() -> None:
    stage = later_stage()
    stage.take_rows(0, WINDOW_ROWS)
    with pytest.raises(Refused, match=f"more than {WINDOW_ROWS} rows wait"):
        stage.take_rows(WINDOW_ROWS, 1)
    stage.count_ran(1)
    stage.take_rows(WINDOW_ROWS, 1)


def test_a_prompt_waits_at_the_first_stage_however_long_it_is() -> None:
    first = StageSession(opening(budget=4 * WINDOW_ROWS))
    first.take_rows(0, 4 * WINDOW_ROWS)
    assert first.count_ran(4 * WINDOW_ROWS) == 0


def test_a_stage_tells_now_and_then_what_it_ran() -> None:
    stage = later_stage()
    told = [stage.count_ran(rows) for rows in (PREFILL_ROWS - 1, 1, PREFILL_ROWS + 5, 1)]
    assert told == [0, PREFILL_ROWS, PREFILL_ROWS + 5, 0]


def test_rows_go_on_as_the_next_stage_runs_them() -> None:
    stage = StageSession(opening())
    chunks = WINDOW_ROWS // PREFILL_ROWS
    assert all(stage.may_send(PREFILL_ROWS) for _ in range(chunks))
    assert not stage.may_send(1)
    stage.count_ran_after(PREFILL_ROWS)
    assert not stage.may_send(PREFILL_ROWS + 1)
    assert stage.may_send(PREFILL_ROWS)
    assert not stage.may_send(1)
    assert stage.sent == WINDOW_ROWS + PREFILL_ROWS


def test_nobody_runs_more_rows_than_were_sent() -> None:
    stage = StageSession(opening())
    stage.may_send(5)
    stage.count_ran_after(4)
    with pytest.raises(Refused, match="more rows than it was sent"):
        stage.count_ran_after(2)


def test_what_is_not_told_yet_never_stops_the_sender() -> None:
    """The receiver holds back less than a chunk; a chunk must still fit the window."""
    before, stage, position = StageSession(opening()), later_stage(), 0
    for rows in [PREFILL_ROWS - 1, *[PREFILL_ROWS] * 9, 1, 1, 1]:
        assert before.may_send(rows)
        stage.take_rows(position, rows)
        position += rows
        if told := stage.count_ran(rows):
            before.count_ran_after(told)


def test_a_stop_id_ends_the_generation() -> None:
    session = StageSession(opening())
    assert session.draw(7) is None
    assert session.draw(2) == "stop"


@pytest.mark.parametrize(("most", "budget", "tokens"), [(3, 20, 3), (100, 9, 4)])
def test_length_ends_it_by_wish_or_by_budget(most: int, budget: int, tokens: int) -> None:
    session = StageSession(opening(decoding=DecodingParams(max_tokens=most), budget=budget))
    ends = [session.draw(7) for _ in range(tokens)]
    assert ends == [None] * (tokens - 1) + ["length"]


def test_tokens_wait_for_credit() -> None:
    session = StageSession(opening())
    assert session.draw(7) is None
    assert session.may_continue(7)
    assert session.draw(8) is None
    assert not session.may_continue(8)
    assert session.grant(1) == 8
    assert session.grant(1) is None
