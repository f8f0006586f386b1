"""Slices and the arithmetic of coverage, against a plain set of layers."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.slices import (
    MAX_LAYERS,
    Slice,
    gaps,
    ranges_where,
    replicas_per_layer,
)

slices = st.tuples(st.integers(0, 39), st.integers(1, 20)).map(
    lambda pair: Slice(pair[0], pair[0] + pair[1])
)


@pytest.mark.parametrize(("start", "end"), [(0, 0), (3, 2), (-1, 4), (0, MAX_LAYERS + 1)])
def test_what_is_no_slice_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="is no slice"):
        Slice(start, end)


@pytest.mark.parametrize(
    "pair", [[0, 0], [5, 2], [-1, 2], [0, 2**40], [0, 1.5], [True, 2], ["0", 1]]
)
def test_hostile_slices_do_not_decode(pair: list[object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(pair), type=Slice)


def test_a_slice_reads_and_measures() -> None:
    assert str(Slice(10, 20)) == "10:20"
    assert len(Slice(10, 20)) == 10


@given(slices, slices)
def test_relations_agree_with_sets(one: Slice, other: Slice) -> None:
    a, b = set(range(one.start, one.end)), set(range(other.start, other.end))
    assert one.contains(other) == (b <= a)
    assert one.overlaps(other) == bool(a & b)


@given(st.integers(1, 40), st.lists(slices, max_size=8))
def test_replicas_and_gaps_agree_with_counting(total: int, held: list[Slice]) -> None:
    counts = [sum(part.start <= layer < part.end for part in held) for layer in range(total)]
    assert replicas_per_layer(total, held) == tuple(counts)
    missing = {layer for part in gaps(total, held) for layer in range(part.start, part.end)}
    assert missing == {layer for layer in range(total) if counts[layer] == 0}


@given(st.lists(st.booleans(), max_size=40))
def test_ranges_are_maximal_ordered_and_complete(flags: list[bool]) -> None:
    found = ranges_where(flags)
    assert [i for part in found for i in range(part.start, part.end)] == [
        i for i, flag in enumerate(flags) if flag
    ]
    assert all(left.end < right.start for left, right in itertools.pairwise(found))
