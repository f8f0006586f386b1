"""The planner: gaps first, within the memory, and no two Hosts at odds for long."""

from __future__ import annotations

import itertools
import random
from time import process_time

import msgspec
import pytest
from domain_samples import SMOL, ordered
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_samples import TEN

from diffuse_core.domain.planner import MIB, plan
from diffuse_core.domain.slices import Slice, gaps, replicas_per_layer
from diffuse_core.errors import UsageError

ME = ordered(9)


def _slices(*pairs: tuple[int, int]) -> list[Slice]:
    return [Slice(*pair) for pair in pairs]


# --- what fits and what is said ------------------------------------------------------------


def test_too_little_memory_names_what_one_layer_needs() -> None:
    with pytest.raises(
        UsageError,
        match=r"memory cap 8\.0 MiB is too small: one layer of smol needs 9\.8 MiB "
        r"\(weights 6\.8 MiB \+ KV 3\.0 MiB\)",
    ):
        plan(8 * MIB, SMOL, [], own=ME, model="smol")


def test_the_bill_adds_up() -> None:
    bill = plan(150 * MIB, SMOL, [], own=ME).bytes
    parts = bill["weights"] + bill["kv_reserve"] + bill["embedding"] + bill["head"]
    assert parts == bill["total"] <= bill["capacity"] == 150 * MIB


def test_a_host_of_the_whole_tied_model_holds_one_copy_of_the_embedding() -> None:
    chosen = plan(2**40, SMOL, [], own=ME)
    assert chosen.slice == Slice(0, 30)
    assert chosen.bytes["head"] == SMOL.head_bytes - SMOL.embedding_bytes  # the final norm
    assert chosen.bytes["total"] == SMOL.needed_bytes(Slice(0, 30))


def test_an_untied_head_is_counted_too() -> None:
    assert plan(10_000, TEN, [], own=ME).bytes["head"] == 300


def test_a_cap_on_layers_holds_whatever_the_memory() -> None:
    assert plan(2**40, SMOL, [], own=ME, max_layers=7).slice == Slice(0, 7)


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 10)), max_size=6),
    st.one_of(st.none(), st.integers(1, 12)),
    st.binary(min_size=32, max_size=32),
)
def test_whatever_is_planned_fits_and_helps(
    capacity: int, pairs: list[tuple[int, int]], cap: int | None, own: bytes
) -> None:
    held = [Slice(start, min(10, start + length)) for start, length in pairs]
    if capacity < 100:
        with pytest.raises(UsageError):
            plan(capacity, TEN, held, own=own, max_layers=cap)
        return
    chosen = plan(capacity, TEN, held, own=own, max_layers=cap)
    assert TEN.needed_bytes(chosen.slice) == chosen.bytes["total"] <= capacity
    assert len(chosen.slice) <= (cap or 10)
    counts = replicas_per_layer(10, held)
    covered = [counts[layer] for layer in range(chosen.slice.start, chosen.slice.end)]
    if "fills" in chosen.reason:
        assert 0 in covered
    else:
        reachable = [layer for layer in range(10) if capacity >= 400 or 0 < layer < 9]
        assert min(covered) == min(counts[layer] for layer in reachable)


# --- which slice ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "held", "chosen", "reason"),
    [
        (600, [], (0, 3), "fills the gap 0:3 of 10"),
        (600, [(0, 3)], (7, 10), "fills the gap 7:10 of 10"),
        (600, [(0, 3), (7, 10)], (1, 7), "fills the gap 3:7 of 10"),
        (350, [], (3, 6), "fills the gap 3:6 of 10"),
        (600, [(0, 4), (5, 7), (8, 10)], (2, 8), "fills the gaps 4:5 and 7:8 of 10"),
        (500, [(0, 10)], (8, 10), "reinforces 8:10 of 10, held once"),
        (300, [(0, 10), (0, 10), (0, 4)], (4, 7), "adds redundancy to 4:7 of 10, held twice"),
        (350, [(1, 10), (4, 10)], (1, 4), "reinforces 1:4 of 10, held once"),
    ],
)
def test_rules(
    capacity: int, held: list[tuple[int, int]], chosen: tuple[int, int], reason: str
) -> None:
    own = ordered(0)
    made = plan(capacity, TEN, _slices(*held), own=own)
    if "reinforces 8:10" in reason:  # either end is as good; the id decides
        assert made.slice in _slices((0, 2), (8, 10))
        return
    assert made.slice == Slice(*chosen)
    assert made.reason == reason


def test_two_lacking_ends_at_once_are_worth_most() -> None:
    assert plan(1600, TEN, _slices((2, 9)), own=ME).slice == Slice(0, 10)


def test_equally_good_reinforcements_are_spread_by_id() -> None:
    chosen = {plan(300, TEN, _slices((0, 10)), own=ordered(i)).slice for i in range(64)}
    assert len(chosen) > 1
    assert plan(300, TEN, _slices((0, 10)), own=ME) == plan(300, TEN, _slices((0, 10)), own=ME)


def test_room_left_goes_to_the_neighbours_with_fewer_holders() -> None:
    held = _slices((0, 4), (0, 4), (5, 10))
    for target in (1, 2):
        assert plan(300, TEN, held, own=ME, target_replicas=target).slice == Slice(4, 7)
    held = _slices((0, 4), (5, 10), (5, 10))
    assert plan(300, TEN, held, own=ME).slice == Slice(2, 5)


def test_an_end_which_costs_more_is_taken_after_all_that_costs_less() -> None:
    held = _slices((0, 3), (5, 10))
    assert plan(900, TEN, held, own=ME).slice == Slice(1, 9)
    assert plan(1200, TEN, held, own=ME).slice == Slice(0, 9)


def test_who_can_hold_no_end_leaves_room_for_those_that_can() -> None:
    held: list[Slice] = []
    for number in range(3):
        held.append(plan(250, TEN, held, own=ordered(number)).slice)
    assert sorted(held) == _slices((2, 4), (4, 6), (6, 8))


def test_a_thousand_hosts_are_planned_for_in_milliseconds() -> None:
    shape = msgspec.structs.replace(TEN, layers=200)
    rng = random.Random(1)
    starts = [rng.randrange(190) for _ in range(1000)]
    held = [Slice(start, start + rng.randint(1, 10)) for start in starts]
    start = process_time()
    for number in range(10):
        plan(1000 + number, shape, held, own=ME)
    assert (process_time() - start) / 10 < 0.02


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_three_hosts_of_150_mib_cover_smollm2(order: tuple[int, ...]) -> None:
    held: list[Slice] = []
    for number in order:
        held.append(plan(150 * MIB, SMOL, held, own=ordered(number)).slice)
    assert not gaps(30, held)
    assert all(SMOL.needed_bytes(part) <= 150 * MIB for part in held)


@settings(max_examples=200)
@given(st.integers(0, 10**6))
def test_enough_memory_in_any_shares_covers_the_model(seed: int) -> None:
    rng = random.Random(seed)
    layers, ends = rng.choice([8, 16, 30]), rng.choice([0, 2, 8])
    shape = msgspec.structs.replace(
        TEN, layers=layers, embedding_bytes=100 * ends, head_bytes=100 * ends
    )
    capacities = [100 * (ends + rng.randint(1, 6)) for _ in range(2)]
    while sum(capacities) < 150 * (layers + 2 * ends):
        capacities.append(100 * rng.randint(1, 6 + ends))
    rng.shuffle(capacities)
    held: list[Slice] = []
    for number, capacity in enumerate(capacities):
        held.append(plan(capacity, shape, held, own=ordered(number)).slice)
    assert not gaps(layers, held)
