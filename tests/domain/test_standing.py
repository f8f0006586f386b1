"""How models stand, in words: short, true, and bounded however many ranges there are."""

from __future__ import annotations

import msgspec
import pytest
from domain_samples import MODEL, SMOL, member
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.observe import network_view
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.standing import (
    MAX_RUNS,
    coming_text,
    least_text,
    listed,
    ranges_text,
    replicas_text,
    state_text,
    variants,
    variants_text,
)
from diffuse_core.domain.view import Coming, ModelView

Span = tuple[int, int]


def _view(*holdings: tuple[int, int, str] | Span, target: int = 2) -> ModelView:
    members = [
        member(number, *span[:2], state=(*span, "ready")[2])
        for number, span in enumerate(holdings, 1)
    ]
    if not members:
        members = [member(99, 0, 1, liveness="dead")]
    (model,) = network_view(members, None, 0.0, 0.0, target).models
    return model


@pytest.mark.parametrize(
    ("holdings", "told"),
    [
        ([(0, 30), (0, 30)], "Robust: every layer has 2 holders or more"),
        (
            [(0, 30), (0, 10), (20, 30)],
            "Fragile: layers 10:20 have one holder; one more 98 MiB host makes it Robust",
        ),
        (
            [(0, 30)],
            "Fragile: every layer has only one holder; one more 347 MiB host makes it Robust",
        ),
        (
            [(0, 10), (20, 30)],
            "Incomplete: layers 10:20 of 30 are held by no live node; "
            "one more 98 MiB host closes the gap",
        ),
        (
            [(0, 10), (20, 29)],
            "Incomplete: layers 10:20 and 29:30 of 30 are held by no live node; "
            "one more 250 MiB host closes every gap",
        ),
        (
            [(0, 10), (20, 30), (10, 20, "loading")],
            "Incomplete: layers 10:20 of 30 are held by no live node; "
            "10:20 is being loaded by 1 host; one more 347 MiB host makes it Robust",
        ),
        (
            [(0, 30), (0, 30, "claiming")],
            "Fragile: every layer has only one holder; 0:30 is claimed by 1 host",
        ),
    ],
)
def test_states_in_words(holdings: list, told: str) -> None:
    assert state_text(_view(*holdings)) == told


@pytest.mark.parametrize(
    ("holdings", "target", "told"),
    [
        ([(0, 30)], 1, "Robust: every layer has a holder or more"),
        ([], 1, "Incomplete: layers 0:30 of 30 are held by no live node; "
         "one more 347 MiB host makes it Robust"),
        ([(0, 30)], 3, "Fragile: every layer has only one holder; "
         "one more 347 MiB host gives every layer 2 holders"),
        ([(0, 30), (0, 15), (10, 30)], 3, "Fragile: layers 0:10 and 15:30 have 2 of 3 holders; "
         "one more 347 MiB host makes it Robust"),
    ],
)  # fmt: skip
def test_other_targets(holdings: list, target: int, told: str) -> None:
    assert state_text(_view(*holdings, target=target)) == told


def test_a_host_of_the_size_that_is_named_does_it() -> None:
    for holdings in ([(0, 10), (20, 30)], [(0, 30), (0, 10)], [(3, 30)], [(0, 4), (6, 30)]):
        remedy = _view(*holdings).remedy
        assert remedy is not None
        assert SMOL.needed_bytes(remedy.slice) == remedy.bytes
        after = _view(*holdings, (remedy.slice.start, remedy.slice.end))
        assert (after.state, after.min_replicas) == (remedy.state, remedy.min_replicas)


@pytest.mark.parametrize(
    ("spans", "short", "words"),
    [
        ([(0, 4)], "0:4", "layers 0:4"),
        ([(0, 4), (8, 9)], "0:4 and 8:9", "layers 0:4 and 8:9"),
        ([(0, 1), (2, 3), (4, 5)], "0:1, 2:3 and 4:5", "layers 0:1, 2:3 and 4:5"),
        (
            [(n, n + 1) for n in range(0, 8, 2)],
            "0:1, 2:3, 4:5 and 1 more range",
            "layers 0:1, 2:3, 4:5 and 1 more range",
        ),
        (
            [(n, n + 1) for n in range(0, 10, 2)],
            "0:1, 2:3, 4:5 and 2 more ranges",
            "layers 0:1, 2:3, 4:5 and 2 more ranges",
        ),
        (
            [(n, n + 1) for n in range(0, 20, 2)],
            "0:1, 2:3, 4:5 and 7 more ranges",
            "layers 0:1, 2:3, 4:5 and 7 more ranges",
        ),
    ],
)
def test_ranges_in_words(spans: list[Span], short: str, words: str) -> None:
    ranges = [Slice(*span) for span in spans]
    assert listed(ranges) == short
    assert ranges_text(ranges) == words


def test_no_range_in_words() -> None:
    assert ranges_text([]) == "no layers"


def test_what_is_coming_is_told_by_slice() -> None:
    coming = (
        Coming(Slice(0, 4), "claiming", 2),
        Coming(Slice(10, 20), "loading", 1),
        Coming(Slice(11, 20), "loading", 1),
        Coming(Slice(12, 20), "loading", 1),
    )
    assert coming_text(coming[:2]) == (
        "0:4 is claimed by 2 hosts, 10:20 is being loaded by 1 host"
    )
    assert coming_text(coming).endswith(" and 1 more range")
    assert coming_text(()) == ""


def test_equal_claims_are_counted_together() -> None:
    model = _view((0, 10, "loading"), (0, 10, "loading"), (0, 9, "claiming"), (5, 9, "leaving"))
    assert model.coming == (
        Coming(Slice(0, 9), "claiming", 1),
        Coming(Slice(0, 10), "loading", 2),
    )
    assert model.weakest == Slice(0, 30)


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([2] * 10 + [1] * 10 + [3] * 10, "0:10 x2, 10:20 x1, 20:30 x3"),
        ([0] * 4, "0:4 x0"),
        ([1, *[2, 3] * 8], "0:1 x1, 1:17 x2+"),
        (
            [0, *[1, 2] * 20],
            "0:1 x0, 1:2 x1, 3:4 x1, 5:6 x1, 7:8 x1, 9:10 x1, 11:12 x1, 13:14 x1, 15:16 x1, "
            "17:18 x1, 19:20 x1, 21:22 x1 and 29 stronger ranges",
        ),
    ],
)
def test_replicas_in_short(counts: list[int], told: str) -> None:
    assert replicas_text(counts, 2) == told


@given(st.lists(st.integers(0, 5), min_size=1, max_size=300), st.integers(1, 3))
def test_replicas_in_short_are_bounded_and_name_the_weakest(
    counts: list[int], target: int
) -> None:
    told = replicas_text(counts, target)
    assert told.count(":") <= MAX_RUNS
    least = min(*counts, target) if told.count("+") else min(counts)
    assert f" x{least}" in told


@given(st.integers(0, 2**40))
def test_a_size_that_is_named_is_enough(size: int) -> None:
    number, unit = least_text(size).split()
    assert float(number) * {"MiB": 2**20, "GiB": 2**30}[unit] >= size * (1 - 1e-12)


def test_the_ways_of_an_id_are_told_in_one_place() -> None:
    other = msgspec.structs.replace(MODEL, contract="int8", fingerprint="c" * 64)
    members = [member(1, 0, 30), member(2, 0, 30, model=other), member(3, 0, 5, model=other)]
    view = network_view(members, None, 0.0, 0.0, 2)
    (one,) = variants(view.models)
    assert [(way.contract, way.hosts, way.state) for way in one.variants] == [
        ("bf16", 1, "Fragile"),
        ("int8", 2, "Fragile"),
    ]
    assert variants_text(one) == (
        f"smol is here in 2 ways that share no route: bf16 ({'a' * 12}), int8 ({'c' * 12}); "
        "smol@FINGERPRINT picks one"
    )
    (alone,) = variants(view.models[:1])
    assert variants_text(alone) == ""
