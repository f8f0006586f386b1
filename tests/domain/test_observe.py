"""The view builder: what screens draw is what gossip knows."""

from __future__ import annotations

from time import process_time

import msgspec
import pytest
from domain_samples import MODEL, member, node, record, signed

from diffuse_core.domain.identity import node_text, short_text
from diffuse_core.domain.members import Member
from diffuse_core.domain.messages import Rumour
from diffuse_core.domain.observe import Sayings, members_from_push, network_view
from diffuse_core.domain.records import Load, SignedRecord
from diffuse_core.domain.relayed_address import RelayedAddress
from diffuse_core.domain.slices import Slice


def test_a_view_of_a_small_network() -> None:
    load = Load(sessions=2, kv_used=5, kv_budget=9, tokens_per_s=3.5)
    sentinel = Member(
        record=record(3, role="sentinel", addresses=("h:1",), load=load, capacity=7),
        liveness="suspect",
        heard_at=40.0,
        rtt_s=0.002,
        distance_s=0.003,
    )
    members = [
        member(1, 0, 10, heard_at=49.0, distance_s=0.1),
        member(2, 20, 30, heard_at=60.0),
        sentinel,
    ]
    view = network_view(members, node(1), 50.0, 1234.5, 2)
    assert view.taken_at == 1234.5
    assert view.me == node_text(node(1))
    assert [one.node for one in view.nodes] == sorted(node_text(node(n)) for n in (1, 2, 3))
    seen = {one.short: one for one in view.nodes}
    own, future, third = (seen[short_text(node(n))] for n in (1, 2, 3))
    assert (own.me, own.slice, own.state, own.model) == (True, Slice(0, 10), "ready", "smol")
    assert (own.fingerprint, own.contract, own.last_seen_s) == ("a" * 64, "bf16", 1.0)
    assert (future.me, future.last_seen_s) == (False, 0.0)
    assert (third.role, third.liveness, third.rtt_s) == ("sentinel", "suspect", 0.002)
    assert (own.distance_s, future.distance_s, third.distance_s) == (None, None, 0.003)
    assert (third.model, third.slice, third.capacity, third.addresses) == (None, None, 7, ("h:1",))
    assert (third.sessions, third.kv_used, third.kv_budget, third.tokens_per_s) == (2, 5, 9, 3.5)
    (model,) = view.models
    assert (model.id, model.layers, model.context, model.hosts) == ("smol", 30, 8192, 2)
    assert (model.state, model.servable, model.missing) == ("Incomplete", False, (Slice(10, 20),))
    assert (model.min_replicas, model.target_replicas) == (0, 2)
    assert model.replicas == (1,) * 10 + (0,) * 10 + (1,) * 10
    assert model.shape == MODEL.shape


def test_what_is_kept_from_one_picture_to_the_next_changes_nothing() -> None:
    sayings = Sayings()
    first = [member(1, 0, 10, heard_at=1.0), member(2, 20, 30, heard_at=1.0)]
    newer = [
        member(1, 0, 12, heard_at=5.0, liveness="suspect"),
        msgspec.structs.replace(first[1], rtt_s=0.5, distance_s=0.4),
        member(3, 5, 6),
    ]
    for now, members in ((2.0, first), (3.0, first), (6.0, newer), (7.0, newer[1:]), (8.0, first)):
        kept = network_view(members, node(1), now, now, 2, sayings)
        assert kept == network_view(members, node(1), now, now, 2)
    # What nobody asks for any more is not kept, and what stands is not worked out again.
    assert sayings.of(first, node(1)).keys() == {node(1), node(2)}
    again = sayings.of(first, node(1))
    assert all(view is again[of] for of, view in sayings.of(first, node(1)).items())
    assert sayings.of([], node(1)) == {}


def test_a_view_tells_through_whom_a_node_is_met() -> None:
    relayed = [str(RelayedAddress(node(n), f"9.9.9.9:{n}")) for n in (8, 9, 8)]
    addresses = ("10.0.0.1:1", *relayed[:2], "relay:nobody@9.9.9.9:1")
    members = [
        Member(record=record(1, addresses=addresses), liveness="alive", heard_at=0.0),
        Member(record=record(2, addresses=tuple(relayed)), liveness="alive", heard_at=0.0),
    ]
    seen = {one.node: one for one in network_view(members, None, 0.0, 0.0, 2).nodes}
    both = (node_text(node(8)), node_text(node(9)))
    one, other = seen[node_text(node(1))], seen[node_text(node(2))]
    assert (one.addresses, one.relays) == (("10.0.0.1:1",), both)
    assert (other.addresses, other.relays) == ((), both)


@pytest.mark.parametrize(
    ("liveness", "servable"), [("alive", True), ("suspect", True), ("dead", False)]
)
def test_suspects_serve_and_the_dead_do_not(liveness: str, servable: bool) -> None:
    view = network_view([member(1, 0, 30, liveness=liveness)], None, 0.0, 0.0, 1)
    assert view.me is None
    assert view.models[0].servable is servable
    assert view.nodes[0].liveness == liveness
    assert view.models[0].fingerprint == MODEL.fingerprint


def test_an_observer_builds_members_from_a_pull() -> None:
    records = [
        signed(1, 5, version="old"),
        signed(1, 6, version="new"),
        signed(1, 4, version="older"),
        signed(2, 3),
        signed(3, 9),
        signed(4, 1, left=True),
        SignedRecord(b"junk", bytes(64)),
    ]
    rumours = [
        Rumour(node(1), 5, "dead"),
        Rumour(node(2), 3, "suspect"),
        Rumour(node(3), 10, "dead"),
        Rumour(node(8), 1, "alive"),
    ]
    members = {one.record.node: one for one in members_from_push(records, rumours, 7.0)}
    assert set(members) == {node(1), node(2), node(3)}
    assert members[node(1)].record.version == "new"
    assert members[node(1)].liveness == "alive"
    assert members[node(2)].liveness == "suspect"
    assert members[node(3)].liveness == "dead"
    assert members[node(1)].heard_at == 7.0
    assert members[node(2)].live
    assert not members[node(3)].live


def test_the_view_of_many_models_takes_time_in_proportion() -> None:
    members = [
        member(n, 0, 20, model=msgspec.structs.replace(MODEL, id=f"m{n}")) for n in range(1, 2001)
    ]

    def seconds(count: int) -> float:
        began = process_time()
        view = network_view(members[:count], None, 0.0, 0.0, 2)
        taken = process_time() - began
        assert [model.hosts for model in view.models] == [1] * count
        return taken

    few = min(seconds(250) for _ in range(3))
    assert min(seconds(2000) for _ in range(2)) < 24 * few
