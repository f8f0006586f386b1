"""Which layers a client may keep to itself, what they take, and what is refused."""

from __future__ import annotations

import re

import pytest

from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.own_layers import (
    OWN,
    OwnNeed,
    check_drawing,
    check_room,
    kv_rooms,
    need_text,
    own_need,
    own_parts,
)
from diffuse_core.domain.session_memory import session_bytes
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import UsageError

MIB = 2**20
SHAPE = ModelShape(
    layers=10,
    hidden=512,
    vocab=1000,
    context=2048,
    layer_bytes=4 * MIB,
    embedding_bytes=8 * MIB,
    head_bytes=9 * MIB,
    kv_bytes=1024,
)


def test_parts_are_the_ends_of_the_model() -> None:
    assert own_parts(10, 3, 0) == (Slice(0, 3),)
    assert own_parts(10, 3, 2) == (Slice(0, 3), Slice(8, 10))
    assert own_parts(10, 8, 1) == (Slice(0, 8), Slice(9, 10))


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (0, 2, "needs --private K"),
        (10, 0, "--private 10 leaves none of the model's 10 layers to the network; use at most "
         "--private 9"),
        (8, 2, "--private 8 --private-tail 2 leaves none"),
        (900, 3, "use at most --private 6"),
        (1, 9, "use less of --private-tail"),
    ],
)  # fmt: skip
def test_something_is_left_for_hosts(first: int, last: int, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        own_parts(10, first, last)


@pytest.mark.parametrize(
    ("penalty", "value"),
    [("repetition_penalty", 1.1), ("presence_penalty", 0.1), ("frequency_penalty", -0.1)],
)
def test_penalties_need_the_tail_here(penalty: str, value: float) -> None:
    sampling = SamplingParams(**{penalty: value})
    check_drawing(sampling, tail=True)
    with pytest.raises(UsageError, match=f"^--{penalty.replace('_', '-')}: .*--private-tail 1"):
        check_drawing(sampling, tail=False)


def test_all_else_may_be_drawn_by_a_host() -> None:
    check_drawing(
        SamplingParams(temperature=1.0, top_p=0.9, top_k=5, min_p=0.1, logit_bias=((3, 1.0),)),
        tail=False,
    )


def test_what_parts_take() -> None:
    head, tail = Slice(0, 3), Slice(8, 10)
    need = own_need(SHAPE, "bf16", (head, tail), 100)
    sessions = sum(session_bytes(SHAPE, "bf16", part, 100, OWN) for part in (head, tail))
    assert need == OwnNeed((3 * 4 + 8 + 2 * 4 + 9) * MIB, sessions)
    assert need.total == need.weights + need.kv


@pytest.mark.parametrize("rows", [2, 100, 1500, 2048])
def test_a_session_that_there_is_room_for_fits_into_each_part(rows: int) -> None:
    parts = (Slice(0, 3), Slice(8, 10))
    needs = [session_bytes(SHAPE, "bf16", part, rows, OWN) for part in parts]
    for room in (sum(needs), sum(needs) + 12345, 3 * sum(needs)):
        rooms = kv_rooms(SHAPE, "bf16", parts, room)
        assert all(need <= one for need, one in zip(needs, rooms, strict=True))
        assert sum(rooms) <= room


def test_it_is_told_what_would_fit() -> None:
    parts = (Slice(0, 5), Slice(7, 10))
    need = own_need(SHAPE, "bf16", parts, 100)
    check_room(SHAPE, "bf16", parts, 100, need.total)
    with pytest.raises(UsageError, match=r"layers 0:5 and 7:10 would take 49 MiB of weights"):
        check_room(SHAPE, "bf16", parts, 100, need.total - 1)
    with pytest.raises(UsageError, match=r"--private 4 --private-tail 3 would fit"):
        check_room(SHAPE, "bf16", parts, 100, need.total - 1)
    with pytest.raises(UsageError, match=r"--private 1 --private-tail 1 would fit"):
        check_room(SHAPE, "bf16", parts, 100, 27 * MIB)
    with pytest.raises(UsageError, match=r"--private 2 would fit"):
        check_room(SHAPE, "bf16", parts[:1], 100, 17 * MIB)
    with pytest.raises(UsageError, match=r"and 10 MiB may be taken; not even one layer fits"):
        check_room(SHAPE, "bf16", parts, 100, 10 * MIB)


def test_what_they_take_is_told_in_words() -> None:
    assert need_text((Slice(0, 4),), OwnNeed(61 * MIB, 9 * MIB), 5 * 2**30 + 2**27) == (
        "private: layers 0:4 take 61 MiB of weights and 9.0 MiB of KV here (of 5.1 GiB free)"
    )
