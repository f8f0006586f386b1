"""What fits: the furthest end for each start, by arithmetic and by trying."""

from __future__ import annotations

import msgspec
import pytest
from domain_samples import SMOL
from hypothesis import given
from hypothesis import strategies as st
from placement_samples import TEN

from diffuse_core.domain.fitting import reach, reachable
from diffuse_core.domain.shapes import ModelShape, kinds_of_layers
from diffuse_core.domain.slices import Slice


def tried(capacity: int, shape: ModelShape, cap: int | None) -> tuple[int, ...]:
    found = []
    for start in range(shape.layers):
        end = start
        for further in range(start + 1, min(shape.layers, start + (cap or 1024)) + 1):
            if shape.needed_bytes(Slice(start, further)) <= capacity:
                end = further
        found.append(end)
    return tuple(found)


@given(
    st.integers(0, 3000),
    st.one_of(st.none(), st.integers(1, 12)),
    st.booleans(),
    st.integers(0, 500),
    st.lists(st.integers(20, 200), min_size=2, max_size=12),
)
def test_reach_is_what_trying_gives(
    capacity: int, cap: int | None, tied: bool, head: int, sizes: list[int]
) -> None:
    kinds, kind_of = kinds_of_layers(sizes)
    shape = msgspec.structs.replace(
        TEN,
        layers=len(sizes),
        layer_bytes=max(sizes),
        kinds=kinds,
        kind_of=kind_of,
        head_bytes=head,
        kv_bytes=0,
        tied=tied,
    )
    assert reach(capacity, shape, cap) == tried(capacity, shape, cap)


def test_layers_that_weigh_nothing_are_no_trap() -> None:
    empty = msgspec.structs.replace(TEN, layer_bytes=0, embedding_bytes=0, head_bytes=0)
    assert reach(0, empty) == (10,) * 10


def test_a_tied_model_is_held_whole_with_one_copy_of_the_embedding() -> None:
    whole = SMOL.needed_bytes(Slice(0, 30))
    assert reach(whole, SMOL)[0] == 30
    assert reach(whole - 1, SMOL)[0] == 29


@pytest.mark.parametrize(
    ("ends", "flags"),
    [
        ((0, 1, 2), [False, False, False]),
        ((2, 2, 2), [True, True, False]),
        ((0, 3, 3), [False, True, True]),
        ((1, 1, 3), [True, False, True]),
    ],
)
def test_reachable_layers(ends: tuple[int, ...], flags: list[bool]) -> None:
    assert reachable(ends) == flags
