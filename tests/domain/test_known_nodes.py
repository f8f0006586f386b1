"""The list of nodes that are remembered: what goes in, what comes first, what is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.known_nodes import (
    MAX_FILE_BYTES,
    MAX_HEARSAY,
    MAX_KNOWN,
    KnownNode,
    read_known,
    remember,
    usefulness,
    write_known,
)
from diffuse_core.domain.members import Member
from diffuse_core.domain.relayed_address import RelayedAddress
from tests.domain.domain_samples import node, record

DAY = 86_400.0
NOW = 1_700_000_000.0
OWN = node(99)


def alive(number: int, **changes: object) -> Member:
    fields = {"liveness": "alive", "rtt_s": 0.01}
    member = {key: changes.pop(key) for key in tuple(changes) if key in fields}
    changes.setdefault("addresses", (f"10.0.0.{number}:9440",))
    return Member(record=record(number, **changes), heard_at=0.0, **(fields | member))


def known(number: int, **changes: object) -> KnownNode:
    fields = {
        "node": node(number).hex(),
        "addresses": (f"10.0.0.{number}:9440",),
        "role": "host",
        "since": NOW - DAY,
        "seen": NOW,
    }
    return KnownNode(**(fields | changes))


def test_what_is_written_is_read_back() -> None:
    nodes = (known(1), known(2, direct=True))
    assert read_known(write_known(nodes)) == nodes
    assert read_known(write_known(nodes))[0].id == node(1)


def test_the_living_are_remembered_with_where_they_were_reached() -> None:
    members = [
        alive(1),
        alive(2, liveness="dead"),
        alive(3, liveness="suspect"),
        alive(4, addresses=()),
        Member(record=record(99, addresses=("me:1",)), liveness="alive", heard_at=0.0),
    ]
    found = remember((), members, {node(1): "sentinel.example.org:9440"}, node(99), NOW)
    assert [entry.id for entry in found] == [node(1)]
    assert found[0].addresses == ("sentinel.example.org:9440", "10.0.0.1:9440")
    assert (found[0].since, found[0].seen, found[0].direct) == (NOW, NOW, True)


def test_who_is_not_there_now_is_kept_as_it_was() -> None:
    before = (known(1, seen=NOW - 60),)
    assert remember(before, [], {}, OWN, NOW) == before


def test_who_comes_again_is_as_old_as_ever_and_has_its_new_address() -> None:
    before = (known(1, since=NOW - 9 * DAY, seen=NOW - DAY),)
    (again,) = remember(before, [alive(1, addresses=("10.9.9.9:1",))], {}, OWN, NOW)
    assert (again.since, again.seen, again.addresses) == (NOW - 9 * DAY, NOW, ("10.9.9.9:1",))


def test_a_flood_of_made_up_nodes_leaves_those_that_we_met() -> None:
    """They say of themselves what they like: to be sentinels, at public addresses, and old."""
    met = [alive(number) for number in range(1, 11)]
    flood = [
        alive(number, role="sentinel", addresses=("8.8.8.8:9440",), rtt_s=None)
        for number in range(11, 250)
    ]
    made_up = tuple(
        known(number, role="sentinel", addresses=("8.8.8.8:9440",)) for number in range(11, 75)
    )
    for before in ((), made_up):
        found = remember(before, [*flood, *met], {}, OWN, NOW)
        assert {entry.id for entry in found[:10]} == {node(number) for number in range(1, 11)}
        assert len(found) == 10 + MAX_HEARSAY
    later = remember(found, flood, {}, OWN, NOW + 30 * DAY)
    assert {entry.id for entry in later[:10]} == {entry.id for entry in found[:10]}


def test_who_was_met_once_stays_met() -> None:
    (found,) = remember((known(1, direct=True),), [alive(1, rtt_s=None)], {}, OWN, NOW)
    assert found.direct


def test_the_list_is_bounded_and_the_most_useful_stay() -> None:
    sentinel = alive(200, role="sentinel")
    members = [alive(number) for number in range(1, 150)] + [sentinel]
    found = remember((known(150, since=NOW - 30 * DAY, direct=True),), members, {}, OWN, NOW)
    assert len(found) == MAX_KNOWN
    assert {found[0].id, found[1].id} == {node(150), node(200)}


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"since": NOW - 30 * DAY}, {"since": NOW - 60}),
        ({"role": "sentinel"}, {"role": "host"}),
        ({"role": "host"}, {"role": "client"}),
        ({"addresses": ("8.8.8.8:9440",)}, {"addresses": ("192.168.1.2:9440",)}),
        ({"addresses": ("node.example.org:9440",)}, {"addresses": ("host.local:9440",)}),
        ({"addresses": ("[2001:4860:4860::8888]:1",)}, {"addresses": ("[fd00::1]:1",)}),
        ({"direct": True}, {"direct": False}),
        ({"seen": NOW}, {"seen": NOW - 9 * DAY, "since": NOW - 10 * DAY}),
    ],
)
def test_what_makes_a_node_useful(better: dict, worse: dict) -> None:
    assert usefulness(known(1, **better), NOW) > usefulness(known(1, **worse), NOW)


def test_a_clock_that_went_back_does_no_harm() -> None:
    (found,) = remember((known(1, since=NOW + DAY),), [alive(1)], {}, OWN, NOW)
    assert found.since == NOW
    assert usefulness(known(1, seen=NOW + DAY), NOW) > (False, 0)


def changed(**changes: object) -> bytes:
    entry = msgspec.to_builtins(known(1)) | changes
    return msgspec.json.encode({"version": 1, "nodes": [entry]})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 100,
        b"[]",
        b'{"version": 2, "nodes": []}',
        b'{"version": 1, "nodes": 7}',
        b"[" * 100_000,
        b" " * (MAX_FILE_BYTES + 1),
        changed(node="ab"),
        changed(addresses=[]),
        changed(addresses=["x" * 200]),
        changed(addresses=["a:1"] * 9),
        changed(role="king"),
        changed(seen=-1),
        changed(seen=1e300),
        changed(since="yesterday"),
        msgspec.json.encode({"version": 1, "nodes": [msgspec.to_builtins(known(1))] * 65}),
    ],
    ids=range(16),
)
def test_what_is_no_such_list_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        read_known(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_list_or_a_value_error(data: bytes) -> None:
    try:
        read_known(data)
    except ValueError:
        return


def test_a_full_list_fits_its_bound() -> None:
    long = tuple(f"{'x' * 120}:{port}" for port in (10_001, 10_002, 10_003, 10_004, 10_005))
    nodes = tuple(known(number, addresses=long) for number in range(MAX_KNOWN))
    assert read_known(write_known(nodes)) == nodes


def test_a_relayed_address_is_remembered_and_says_nothing_of_how_public_a_node_is() -> None:
    relayed = str(RelayedAddress(node(9), "8.8.4.4:9440"))
    broken = "relay:nobody@8.8.4.4:1"
    addresses = ("10.0.0.1:9440", relayed, broken)
    (kept,) = remember((), [alive(1, addresses=addresses)], {}, OWN, NOW)
    assert kept.addresses == addresses
    assert read_known(write_known((kept,))) == (kept,)
    assert usefulness(kept, NOW) == usefulness(known(1, since=NOW, direct=True), NOW)
    longest = f"{RelayedAddress(node(9), 'h' * 115 + ':9440')}"
    full = tuple(
        known(number, addresses=tuple(f"{n}{longest[1:]}" for n in range(5)))
        for number in range(MAX_KNOWN)
    )
    assert len(write_known(full)) < MAX_FILE_BYTES
    assert read_known(write_known(full)) == full
