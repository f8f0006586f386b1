from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.kept import Kept, Piece
from diffuse_core.domain.session_memory import (
    LEAST_ROWS,
    Wishes,
    least_room,
    most_rows,
    session_bytes,
)
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice

SHAPE = ModelShape(6, 64, 1000, 3000, 1, 1, 1, kv_bytes=256)
FIRST, MIDDLE, LAST, WHOLE = Slice(0, 2), Slice(2, 4), Slice(4, 6), Slice(0, 6)
PARTS = st.sampled_from((FIRST, MIDDLE, LAST, WHOLE))
WISHES = st.builds(
    Wishes,
    prompt=st.integers(0, 50),
    spots=st.integers(0, 16),
    logprobs=st.one_of(st.none(), st.integers(0, 20)),
    penalties=st.booleans(),
    biases=st.integers(0, 1024),
    audit=st.booleans(),
    timed=st.booleans(),
    index=st.integers(0, 63),
)


@given(PARTS, st.integers(50, 2999), WISHES)
def test_a_longer_session_takes_more_and_never_less_than_its_kv(
    part: Slice, rows: int, wishes: Wishes
) -> None:
    need = session_bytes(SHAPE, "bf16", part, rows, wishes)
    assert need < session_bytes(SHAPE, "bf16", part, rows + 1, wishes)
    assert need < session_bytes(SHAPE, "fp32", part, rows + 1, wishes)
    assert need > rows * len(part) * SHAPE.kv_bytes


@given(PARTS, st.integers(0, 20 * 2**20), WISHES)
def test_the_longest_session_there_is_room_for_is_the_longest(
    part: Slice, room: int, wishes: Wishes
) -> None:
    most = most_rows(SHAPE, "bf16", part, room, wishes)
    assert 0 <= most <= SHAPE.context
    if most > wishes.prompt:
        assert session_bytes(SHAPE, "bf16", part, most, wishes) <= room
    if wishes.prompt <= most < SHAPE.context:
        assert session_bytes(SHAPE, "bf16", part, most + 1, wishes) > room


def test_hidden_states_that_may_wait_are_counted_once_the_window_is_full() -> None:
    width = SHAPE.hidden * 2
    plain = Wishes(prompt=2900)
    short, long = (session_bytes(SHAPE, "bf16", MIDDLE, rows, plain) for rows in (2950, 2960))
    # What is kept, KV, and a step each; no more rows wait than the window takes.
    assert long - short == 10 * (width + 2 * SHAPE.kv_bytes + 1200)
    assert session_bytes(SHAPE, "bf16", MIDDLE, 1024, plain) > 1024 * 2 * width


@given(st.integers(1, 40), st.integers(1, 80))
def test_what_is_kept_in_whole_chunks_is_counted(prompt: int, answer: int) -> None:
    wide = ModelShape(6, 4096, 1000, 3000, 1, 1, 1, kv_bytes=0)
    kept = Kept(prompt, width := wide.hidden * 2)
    kept.append(Piece(0, prompt, bytes(prompt * width)))
    for row in range(prompt, prompt + answer):
        kept.append(Piece(row, 1, bytes(width)))
    rows = prompt + answer
    counted = session_bytes(wide, "bf16", FIRST, rows, Wishes(prompt=prompt))
    # Beside it are all rows on their way, to the next Stage and in an audit.
    assert kept.size + 2 * rows * width <= counted


@pytest.mark.parametrize("part", [FIRST, MIDDLE, LAST, WHOLE])
def test_a_host_has_room_for_one_session_in_any_case(part: Slice) -> None:
    assert most_rows(SHAPE, "bf16", part, least_room(SHAPE, "bf16", part)) >= LEAST_ROWS
