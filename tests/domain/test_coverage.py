"""Coverage: who counts, and in which words it is told."""

from __future__ import annotations

import msgspec
import pytest
from domain_samples import MODEL, SMOL, member, record
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.coverage import (
    COMMITTED,
    cover,
    held_slices,
    holders,
    missing_text,
    models,
    remedy,
)
from diffuse_core.domain.members import Member
from diffuse_core.domain.slices import Slice


@pytest.mark.parametrize(
    ("slices", "target", "state", "missing", "weakest", "least"),
    [
        ([], 2, "Incomplete", [(0, 30)], (0, 30), 0),
        ([(0, 10), (20, 30)], 2, "Incomplete", [(10, 20)], (10, 20), 0),
        ([(0, 20), (10, 30)], 2, "Fragile", [], (0, 10), 1),
        ([(0, 30), (0, 30)], 2, "Robust", [], None, 2),
        ([(0, 30)], 1, "Robust", [], None, 1),
        ([(0, 30), (0, 29)], 2, "Fragile", [], (29, 30), 1),
    ],
)
def test_states(
    slices: list[tuple[int, int]],
    target: int,
    state: str,
    missing: list[tuple[int, int]],
    weakest: tuple[int, int] | None,
    least: int,
) -> None:
    coverage = cover(30, [Slice(*pair) for pair in slices], target)
    assert coverage.state == state
    assert coverage.missing == tuple(Slice(*pair) for pair in missing)
    assert coverage.weakest == (Slice(*weakest) if weakest else None)
    assert coverage.min_replicas == least
    assert coverage.servable == (not missing)


def test_only_live_ready_hosts_of_the_same_model_count() -> None:
    other = msgspec.structs.replace(MODEL, contract="int8")
    members = [
        member(1, 0, 10),
        member(2, 10, 20, liveness="suspect"),
        member(3, 20, 30, liveness="dead"),
        member(4, 0, 5, state="loading"),
        member(5, 0, 6, state="leaving"),
        member(6, 0, 7, model=other),
        Member(record=record(7), liveness="alive", heard_at=0.0),
    ]
    assert held_slices(members, MODEL) == (Slice(0, 10), Slice(10, 20))
    assert holders(members, MODEL) == tuple(members[:2])
    assert held_slices(members, MODEL, COMMITTED) == (Slice(0, 10), Slice(10, 20), Slice(0, 5))
    assert models(members) == tuple(
        sorted((MODEL, other), key=lambda ref: (ref.id, ref.fingerprint, repr(ref.shape)))
    )


def test_a_lie_about_the_shape_makes_another_model() -> None:
    liar = msgspec.structs.replace(MODEL, shape=msgspec.structs.replace(SMOL, layers=1))
    members = [member(1, 0, 30), member(2, 0, 1, model=liar)]
    assert held_slices(members, MODEL) == (Slice(0, 30),)
    assert len(models(members)) == 2


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ([(10, 20)], "layers 10:20 of 30 are held by no live node"),
        ([(7, 8)], "layers 7:8 of 30 are held by no live node"),
        ([(0, 4), (10, 20)], "layers 0:4 and 10:20 of 30 are held by no live node"),
        (
            [(0, 4), (10, 20), (29, 30)],
            "layers 0:4, 10:20 and 29:30 of 30 are held by no live node",
        ),
    ],
)
def test_missing_layers_in_words(missing: list[tuple[int, int]], text: str) -> None:
    assert missing_text(30, [Slice(*pair) for pair in missing]) == text


SPANS = st.lists(st.tuples(st.integers(0, 29), st.integers(1, 30)), max_size=8)


@given(SPANS, st.integers(1, 3))
def test_counts_add_up(spans: list[tuple[int, int]], target: int) -> None:
    slices = [Slice(start, min(30, start + length)) for start, length in spans]
    coverage = cover(30, slices, target)
    assert sum(coverage.replicas) == sum(map(len, slices))
    assert sum(map(len, coverage.missing)) == coverage.replicas.count(0)
    assert (coverage.state == "Incomplete") == bool(coverage.missing)
    assert (coverage.state == "Robust") == (coverage.min_replicas >= target)
    assert (coverage.weakest is None) == (coverage.state == "Robust")


@given(SPANS, st.integers(1, 3))
def test_a_remedy_mends_and_nothing_smaller_does(
    spans: list[tuple[int, int]], target: int
) -> None:
    slices = [Slice(start, min(30, start + length)) for start, length in spans]
    before = cover(30, slices, target)
    found = remedy(SMOL, slices, target)
    if found is None:
        assert before.state == "Robust"
        return
    after = cover(30, [*slices, found.slice], target)
    assert (after.state, after.min_replicas) == (found.state, found.min_replicas)
    assert after.min_replicas == before.min_replicas + 1
    for part in (
        (found.slice.start + 1, found.slice.end),
        (found.slice.start, found.slice.end - 1),
    ):
        if part[0] < part[1]:
            less = cover(30, [*slices, Slice(*part)], target)
            assert less.min_replicas == before.min_replicas
