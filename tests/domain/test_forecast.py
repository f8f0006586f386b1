"""Forecasts promise what plans do: what a slice changes, what more memory and more Hosts would."""

from __future__ import annotations

import msgspec
import pytest
from domain_samples import SMOL, ordered
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from placement_samples import TEN

from diffuse_core.domain.forecast import MoreHosts, change, more_hosts, more_memory
from diffuse_core.domain.outlook import change_text, more_hosts_text, more_memory_text
from diffuse_core.domain.planner import MIB, plan
from diffuse_core.domain.shapes import ModelShape, kinds_of_layers
from diffuse_core.domain.slices import Slice, replicas_per_layer

ME = ordered(9)
STATES = ("Incomplete", "Fragile", "Robust")


def _slices(*pairs: tuple[int, int]) -> list[Slice]:
    return [Slice(*pair) for pair in pairs]


@st.composite
def _shapes(draw: st.DrawFn) -> ModelShape:
    layers = draw(st.integers(1, 12))
    sizes = draw(st.lists(st.sampled_from([40, 100, 170]), min_size=layers, max_size=layers))
    kinds, kind_of = kinds_of_layers(sizes)
    return ModelShape(
        layers=layers,
        hidden=8,
        vocab=8,
        context=8,
        layer_bytes=max(sizes),
        embedding_bytes=draw(st.sampled_from([0, 90, 700])),
        head_bytes=draw(st.sampled_from([20, 90, 700])),
        kv_bytes=draw(st.integers(0, 3)),
        tied=draw(st.booleans()),
        kinds=kinds,
        kind_of=kind_of,
    )


@st.composite
def _pictures(draw: st.DrawFn) -> tuple[ModelShape, list[Slice]]:
    shape = draw(_shapes())
    held = []
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, shape.layers - 1))
        held.append(Slice(start, draw(st.integers(start + 1, shape.layers))))
    return shape, held


_capacities = st.integers(60, 3000)
_targets = st.integers(1, 3)
_caps = st.one_of(st.none(), st.integers(1, 12))


def _plan(shape: ModelShape, held: list[Slice], capacity: int, cap: int | None, target: int):  # noqa: ANN202
    needed = min(shape.needed_bytes(Slice(n, n + 1)) for n in range(shape.layers))
    assume(capacity >= needed)
    return plan(capacity, shape, held, own=ME, max_layers=cap, target_replicas=target)


# --- what a slice changes ------------------------------------------------------------------


@given(_pictures(), _capacities, _caps, _targets)
def test_a_change_is_what_counting_says(
    picture: tuple[ModelShape, list[Slice]], capacity: int, cap: int | None, target: int
) -> None:
    shape, held = picture
    made = _plan(shape, held, capacity, cap, target)
    what = change(shape.layers, held, made.slice, target)
    before = replicas_per_layer(shape.layers, held)
    after = replicas_per_layer(shape.layers, [*held, made.slice])
    assert (what.min_before, what.min_after) == (min(before), min(after))
    assert STATES.index(what.after) >= STATES.index(what.before)
    closed = {layer for part in what.closes for layer in range(part.start, part.end)}
    assert closed == {n for n in range(shape.layers) if before[n] == 0 < after[n]}
    mended = {layer for part in what.robust for layer in range(part.start, part.end)}
    assert mended == {n for n in range(shape.layers) if before[n] < target <= after[n]}
    missing = {layer for part in what.missing for layer in range(part.start, part.end)}
    assert missing == {n for n in range(shape.layers) if after[n] == 0}
    assert bool(what.closes) == ("fills" in made.reason)
    if "fills" not in made.reason:
        assert bool(what.raises) == ("reinforces" in made.reason)


@pytest.mark.parametrize(
    ("held", "part", "told"),
    [
        ([], (0, 10), "Incomplete -> Fragile, closes the gap 0:10, least holders 0 -> 1"),
        ([(0, 4)], (4, 6), "stays Incomplete, closes the gap 4:6, 6:10 still missing"),
        ([(0, 10)], (0, 10), "Fragile -> Robust, makes 0:10 Robust, least holders 1 -> 2"),
        ([(0, 10)], (2, 6), "stays Fragile, makes 2:6 Robust"),
        ([(0, 10)] * 2, (2, 6), "stays Robust"),
        (
            [(2, 4), (6, 8)],
            (0, 8),
            "stays Incomplete, closes the gaps 0:2 and 4:6, makes 2:4 and 6:8 Robust, "
            "8:10 still missing",
        ),
    ],
)
def test_changes_in_words(held: list[tuple[int, int]], part: tuple[int, int], told: str) -> None:
    assert change_text(change(10, _slices(*held), Slice(*part), 2)) == told


# --- more memory ---------------------------------------------------------------------------


@given(_pictures(), _capacities, st.integers(0, 3000), _caps, _targets)
def test_more_memory_never_makes_the_state_worse(
    picture: tuple[ModelShape, list[Slice]], capacity: int, more: int, cap: int | None, target: int
) -> None:
    shape, held = picture
    small = _plan(shape, held, capacity, cap, target)
    large = _plan(shape, held, capacity + more, cap, target)
    less = change(shape.layers, held, small.slice, target)
    what = change(shape.layers, held, large.slice, target)
    assert STATES.index(what.after) >= STATES.index(less.after)
    assert what.min_after >= less.min_after


@settings(max_examples=60)
@given(_pictures(), _capacities, _caps, _targets)
def test_what_more_memory_promises_is_what_a_plan_does_and_not_a_byte_less(
    picture: tuple[ModelShape, list[Slice]], capacity: int, cap: int | None, target: int
) -> None:
    shape, held = picture
    now = _plan(shape, held, capacity, cap, target)
    found = more_memory(now, shape, held, own=ME, max_layers=cap, target_replicas=target)
    extras = [more.extra for more in found]
    assert extras == sorted(set(extras))
    assert all(extra > 0 for extra in extras)
    state = change(shape.layers, held, now.slice, target)
    for more in found:
        again = _plan(shape, held, capacity + more.extra, cap, target)
        assert (again.slice, again.reason) == (more.plan.slice, more.plan.reason)
        assert more.change == change(shape.layers, held, again.slice, target)
        assert more.change != state
        if more.change.min_after > state.min_after or more.change.after != state.after:
            less = _plan(shape, held, capacity + more.extra - 1, cap, target)
            assert change(shape.layers, held, less.slice, target).min_after == state.min_after
    # Whatever memory would change the state, or the least holders, is told.
    best = _plan(shape, held, 2**40, cap, target)
    most = change(shape.layers, held, best.slice, target)
    if most.min_after > state.min_after and state.min_before < target:
        assert found[-1].change.min_after == most.min_after
        assert found[-1].change.after == most.after


def _told(held: list[tuple[int, int]], capacity: int, cap: int | None = None) -> list[str]:
    parts = _slices(*held)
    now = plan(capacity * MIB, SMOL, parts, own=ME, max_layers=cap)
    found = more_memory(now, SMOL, parts, own=ME, max_layers=cap)
    as_now = change(30, parts, now.slice, 2)
    return [more_memory_text(more, now, as_now, 30) for more in found]


@pytest.mark.parametrize(
    ("held", "capacity", "told"),
    [
        (
            [(0, 12), (18, 30), (0, 30)],
            30,
            [
                "adding 10 MiB takes 14:18: makes 14:18 Robust",
                "adding 29 MiB takes 12:18: makes 12:18 Robust, Fragile -> Robust",
            ],
        ),
        (
            [(0, 12), (18, 30)],
            50,
            [
                "adding 9 MiB takes 12:18: closes the gap 12:18, Incomplete -> Fragile",
            ],
        ),
        (
            [(0, 20)],
            60,
            [
                "adding 4 MiB takes 29:30: holds the head too, closes the gap 29:30",
                "adding 92 MiB takes 20:30: holds the head too, closes the gap 20:30, "
                "Incomplete -> Fragile",
            ],
        ),
        ([(0, 30), (0, 30)], 60, []),
    ],
)
def test_more_memory_in_words(held: list[tuple[int, int]], capacity: int, told: list[str]) -> None:
    assert _told(held, capacity) == told


def test_memory_for_the_whole_model_is_told() -> None:
    assert _told([], 200)[-1] == (
        "adding 147 MiB takes 0:30: holds the whole model, closes the gap 0:30, "
        "Incomplete -> Fragile"
    )


def test_once_the_gap_is_closed_memory_mends_the_layers_beside_it() -> None:
    (told,) = _told([(0, 12), (18, 30)], 60)
    assert told.startswith("adding 170 MiB takes ")
    # The gap itself is closed without more memory, so that is no gain of it.
    assert " makes " in told
    assert told.endswith(" Robust")
    assert "closes" not in told


def test_a_cap_on_layers_leaves_nothing_to_more_memory() -> None:
    assert _told([], 2000, cap=4) == []


# --- more hosts ----------------------------------------------------------------------------


@settings(max_examples=60)
@given(_pictures(), _capacities, _caps, _targets)
def test_so_many_more_hosts_do_it_and_one_less_does_not(
    picture: tuple[ModelShape, list[Slice]], capacity: int, cap: int | None, target: int
) -> None:
    shape, held = picture
    now = _plan(shape, held, capacity, cap, target)
    told = more_hosts(now, shape, held, max_layers=cap, target_replicas=target)
    if told.robust is not None:
        assert told.covered is not None
        assert told.covered <= told.robust
        assert not told.never
    if told.never:
        # Some lacking layer is beyond a Host of this size, whichever slice it takes.
        fits = {
            layer
            for start in range(shape.layers)
            for end in range(start + 1, shape.layers + 1)
            if shape.needed_bytes(Slice(start, end)) <= capacity and end - start <= (cap or 12)
            for layer in range(start, end)
        }
        counts = replicas_per_layer(shape.layers, held)
        assert any(counts[layer] < target for layer in set(range(shape.layers)) - fits)


@pytest.mark.parametrize(
    ("held", "capacity", "told", "words"),
    [
        ([], 400, (0, 1), "1 more host like this one gives every layer 2 holders (Robust)"),
        (
            [],
            150,
            (2, 5),
            "2 more hosts like this one cover the model, "
            "5 more hosts give every layer 2 holders (Robust)",
        ),
        (
            [(0, 12), (18, 30)],
            40,
            (1, None),
            "1 more host like this one covers the model, "
            "hosts of this size cannot give every layer 2 holders (Robust): more memory can",
        ),
        (
            [],
            40,
            (None, None),
            "hosts of this size cannot cover the model, however many: more memory can",
        ),
        ([(0, 30)], 400, (0, 0), "none is needed: every layer is Robust"),
    ],
)
def test_more_hosts(
    held: list[tuple[int, int]], capacity: int, told: tuple[int | None, int | None], words: str
) -> None:
    parts = _slices(*held)
    now = plan(capacity * MIB, SMOL, parts, own=ME)
    more = more_hosts(now, SMOL, parts)
    assert (more.covered, more.robust) == told
    assert more_hosts_text(more, change(30, parts, now.slice, 2), 2) == words


def test_more_hosts_than_the_limit_are_told_as_such() -> None:
    now = plan(400, TEN, [], own=ME, max_layers=1)
    more = more_hosts(now, TEN, [], max_layers=1, limit=3)
    assert more == MoreHosts(None, None, never=False, limit=3)
    what = change(10, [], now.slice, 2)
    assert "more than 3 more hosts like this one" in more_hosts_text(more, what, 2)
    more = more_hosts(now, TEN, [], max_layers=1, limit=12)
    assert more.covered == 9
    assert more_hosts_text(more, what, 2).endswith(
        "more than 12 more hosts give every layer 2 holders (Robust)"
    )


def test_a_forecast_is_plain_data() -> None:
    now = plan(400, TEN, [], own=ME)
    found = more_memory(now, TEN, [], own=ME)
    assert msgspec.json.decode(msgspec.json.encode(found))[0]["extra"] > 0


def test_a_holder_more_that_changes_no_state_is_told() -> None:
    held = _slices((0, 10), (0, 6))
    now = plan(650, TEN, held, own=ME, target_replicas=4)
    (more,) = more_memory(now, TEN, held, own=ME, target_replicas=4)
    as_now = change(10, held, now.slice, 4)
    assert more_memory_text(more, now, as_now, 10) == (
        "adding 1 MiB takes 6:10: least holders 1 -> 2"
    )
