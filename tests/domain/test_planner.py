"""The planner: gaps first, within the memory, and no two Hosts at odds for long."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest
from domain_samples import SMOL, ordered
from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_core.domain.planner import MIB, HostSummary, plan, settle, volunteer
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice, gaps, replicas_per_layer
from diffuse_core.errors import UsageError

ME = ordered(9)
TEN = ModelShape(
    layers=10,
    hidden=8,
    vocab=8,
    context=2048,
    layer_bytes=100,
    embedding_bytes=300,
    head_bytes=300,
    kv_bytes=0,
    tied=False,
)


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
        (350, [], (1, 4), "fills the gap 1:4 of 10"),
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


def test_room_left_goes_to_neighbours_below_the_target_only() -> None:
    held = _slices((0, 4), (0, 4), (5, 10))
    assert plan(300, TEN, held, own=ME).slice == Slice(4, 7)
    assert plan(300, TEN, held, own=ME, target_replicas=1).slice == Slice(4, 5)


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


# --- settling claims -----------------------------------------------------------------------


def test_of_two_equal_claims_exactly_the_lower_id_stands() -> None:
    claim = Slice(0, 11)
    assert settle(ordered(1), claim, [(ordered(2), claim, "claiming")], counted=())
    assert not settle(ordered(2), claim, [(ordered(1), claim, "claiming")], counted=())


@pytest.mark.parametrize("state", ["loading", "ready"])
def test_a_new_holder_beats_a_claim_whatever_the_ids(state: str) -> None:
    assert not settle(ordered(1), Slice(0, 11), [(ordered(2), Slice(10, 12), state)], counted=())


def test_who_was_counted_in_the_plan_is_no_rival() -> None:
    others = [(ordered(1), Slice(0, 10), "ready"), (ordered(2), Slice(0, 10), "claiming")]
    assert settle(ordered(3), Slice(0, 10), others, counted=_slices((0, 10), (0, 10)))
    assert not settle(ordered(3), Slice(0, 10), others, counted=_slices((0, 10)))


def test_overlap_beside_the_lacking_layers_is_no_conflict() -> None:
    others = [(ordered(1), Slice(0, 5), "ready"), (ordered(2), Slice(0, 3), "loading")]
    assert settle(ordered(3), Slice(2, 10), others, counted=_slices((0, 5)))


def test_a_rival_that_loses_itself_does_not_count() -> None:
    others = [(ordered(1), Slice(0, 5), "claiming"), (ordered(2), Slice(4, 9), "claiming")]
    assert settle(ordered(3), Slice(6, 10), others, counted=())
    assert not settle(ordered(2), Slice(4, 9), others[:1], counted=())


def test_without_a_plan_the_ready_ones_are_taken_as_counted() -> None:
    others = [(ordered(1), Slice(0, 10), "ready")]
    assert settle(ordered(3), Slice(0, 10), others)
    assert not settle(ordered(3), Slice(0, 10), [(ordered(1), Slice(0, 10), "loading")])


def test_leaving_hosts_are_no_rivals() -> None:
    assert settle(ordered(3), Slice(0, 5), [(ordered(1), Slice(0, 5), "leaving")], counted=())


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_hosts_that_start_at_once_agree_in_a_few_rounds(count: int, seed: int) -> None:
    rng = random.Random(seed)
    capacity = {ordered(i): rng.choice([400, 600, 800, 1600]) for i in range(count)}
    plans = {me: plan(capacity[me], TEN, [], own=me) for me in capacity}
    loading: dict[object, Slice] = {}
    for _ in range(count + 1):
        claims = dict(plans)
        for me, claim in claims.items():
            others = [(one, part, "loading") for one, part in loading.items()]
            others += [(one, p.slice, "claiming") for one, p in claims.items() if one != me]
            if settle(me, claim.slice, others, counted=claim.counted):
                loading[me] = claim.slice
                del plans[me]
        for me in plans:
            plans[me] = plan(capacity[me], TEN, list(loading.values()), own=me)
    assert not plans
    apart = [
        (a, b)
        for a, b in itertools.combinations(loading.values(), 2)
        if a == b and gaps(10, loading.values())
    ]
    assert not apart


# --- healing -------------------------------------------------------------------------------


def _host(number: int, start: int, end: int, state: str = "ready", size: int = 800) -> HostSummary:
    return HostSummary(ordered(number), Slice(start, end), state, size)


HURT = [_host(1, 0, 4), _host(2, 0, 4), _host(3, 0, 4), _host(4, 7, 10)]


def _movers(hosts: list[HostSummary], shape: ModelShape = TEN) -> dict[int, Slice]:
    asked = {host.node[0]: volunteer(host.node, hosts, shape) for host in hosts}
    return {number: part for number, part in asked.items() if part is not None}


def test_exactly_one_surplus_host_moves_into_a_gap() -> None:
    assert _movers(HURT) == {1: Slice(4, 7)}


def test_the_one_that_fills_most_moves() -> None:
    hosts = [_host(1, 0, 4, size=200), _host(2, 0, 4, size=800), *HURT[2:]]
    assert _movers(hosts) == {2: Slice(4, 7)}


@pytest.mark.parametrize(
    "hosts",
    [
        [_host(1, 0, 10), _host(2, 0, 10)],
        [_host(1, 0, 4), _host(4, 7, 10)],
        [*HURT, _host(5, 4, 7, "loading")],
        [*HURT, _host(5, 4, 7, "claiming")],
        [_host(1, 0, 4), _host(2, 0, 4, "loading"), _host(4, 7, 10)],
        [_host(1, 0, 4, size=50), _host(2, 0, 4, size=50), _host(4, 7, 10)],
    ],
    ids=["no gap", "no surplus", "being filled", "claimed", "replica not ready", "too small"],
)
def test_nobody_moves(hosts: list[HostSummary]) -> None:
    assert _movers(hosts) == {}


def test_our_own_cap_on_layers_holds() -> None:
    assert volunteer(ordered(1), HURT, TEN, max_layers=2) is None
    assert volunteer(ordered(1), HURT[1:2] + HURT[:1] + HURT[3:], TEN, max_layers=3) == Slice(4, 7)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), min_size=1, max_size=8))
def test_a_move_never_opens_a_gap(pairs: list[tuple[int, int]]) -> None:
    hosts = [
        _host(number, start, min(10, start + length))
        for number, (start, length) in enumerate(pairs)
    ]
    movers = _movers(hosts)
    assert len(movers) <= 1
    before = sum(map(len, gaps(10, [host.slice for host in hosts])))
    after = sum(map(len, gaps(10, [movers.get(host.node[0], host.slice) for host in hosts])))
    assert after < before if movers else after == before
