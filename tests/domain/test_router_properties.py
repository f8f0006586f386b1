"""The router, whatever the network looks like: every layer once, and only on Hosts that count."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from domain_samples import MODEL, SMOL, node, ordered
from domain_samples import member as make_member
from hypothesis import given
from hypothesis import strategies as st
from routing_samples import some_candidates

from diffuse_core.domain.coverage import holders
from diffuse_core.domain.router import Candidate, choose_route
from diffuse_core.domain.slices import gaps
from diffuse_core.errors import ModelIncomplete

if TYPE_CHECKING:
    from diffuse_core.domain.members import Member

TOTAL = 20

candidates = some_candidates(TOTAL, most=14, farthest=2.0, slowest=5.0, busiest=64)


@given(candidates, st.sets(st.integers(0, 13)), st.integers(0, 1000))
def test_a_route_covers_every_layer_once_and_avoids_whom_it_should(
    known: list[Candidate], avoided: set[int], seed: int
) -> None:
    avoid = {ordered(number) for number in avoided}
    usable = {one.node: one.slice for one in known if one.node not in avoid}
    if gaps(TOTAL, usable.values()):
        with pytest.raises(ModelIncomplete):
            choose_route(TOTAL, known, avoid, random.Random(seed))
        return
    route = choose_route(TOTAL, known, avoid, random.Random(seed))
    edges = [part.start for _, part in route] + [TOTAL]
    assert edges[0] == 0
    assert [part.end for _, part in route] == edges[1:]
    assert len({one for one, _ in route}) == len(route)
    assert all(usable[one].contains(part) for one, part in route)


states = st.sampled_from(["claiming", "loading", "ready", "ready", "leaving"])
believed = st.sampled_from(["alive", "alive", "suspect", "dead"])
members = st.lists(
    st.tuples(st.integers(0, 29), st.integers(1, 30), states, believed), max_size=10
).map(
    lambda rows: [
        make_member(number + 1, start, min(30, start + length), state=state, liveness=liveness)
        for number, (start, length, state, liveness) in enumerate(rows)
    ]
)


@given(members, st.integers(0, 1000))
def test_only_live_hosts_that_are_ready_are_on_a_route(known: list[Member], seed: int) -> None:
    """As clients build their candidates: from the holders of the model."""
    ready = [
        Candidate(node=one.record.node, slice=one.record.holding.slice)
        for one in holders(known, MODEL)
    ]
    fit = {
        node(number + 1)
        for number, one in enumerate(known)
        if one.liveness != "dead" and one.record.holding.state == "ready"
    }
    try:
        route = choose_route(SMOL.layers, ready, set(), random.Random(seed))
    except ModelIncomplete:
        return
    assert {one for one, _ in route} <= fit
