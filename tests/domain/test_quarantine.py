"""Nodes that are not used for a day."""

from __future__ import annotations

import json

import pytest

from diffuse_core.domain.identity import Identity
from diffuse_core.domain.quarantine import (
    DAY_S,
    MAX_FILE_BYTES,
    MOST_ENTRIES,
    Quarantine,
    read_quarantine,
)

A, B, C = (Identity(bytes([at]) * 32).node for at in (1, 2, 3))
NOW = 1.8e9


def test_a_node_is_barred_for_a_day() -> None:
    found = Quarantine()
    found.bar(A, NOW)
    assert found.barred(NOW) == {A}
    assert found.barred(NOW + DAY_S - 1) == {A}
    assert found.barred(NOW + DAY_S) == set()
    assert found.entries(NOW + DAY_S) == []


def test_a_clock_that_was_set_back_does_not_make_it_longer() -> None:
    found = Quarantine()
    found.bar(A, NOW)
    assert found.barred(NOW - 10) == set()


def test_who_is_doubtful_beside_two_others_is_barred() -> None:
    found = Quarantine()
    assert found.doubt(A, B, NOW) == set()
    assert found.doubtful(NOW) == {A, B}
    assert found.doubt(B, A, NOW) == set()
    assert found.doubt(C, A, NOW) == {A}
    assert found.barred(NOW) == {A}
    assert found.doubtful(NOW) == {B}


def test_a_suspicion_by_itself_bars_nobody() -> None:
    found = Quarantine()
    found.suspect(A, NOW)
    found.suspect(A, NOW)
    assert found.barred(NOW) == set()
    assert found.doubtful(NOW) == {A}


def test_it_is_bounded_and_the_oldest_go_first() -> None:
    found = Quarantine()
    for at in range(MOST_ENTRIES + 10):
        found.bar(Identity(at.to_bytes(32, "big")).node, NOW)
    assert len(found.entries(NOW)) == MOST_ENTRIES
    assert len(found.encoded(NOW)) <= MAX_FILE_BYTES
    assert len(read_quarantine(found.encoded(NOW)).barred(NOW)) == MOST_ENTRIES


def test_it_is_read_back() -> None:
    found = Quarantine()
    found.bar(A, NOW)
    found.doubt(B, C, NOW)
    again = read_quarantine(found.encoded(NOW))
    assert again.entries(NOW) == found.entries(NOW)


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b" " * (MAX_FILE_BYTES + 1),
        json.dumps({"version": 2, "entries": []}).encode(),
        json.dumps({"version": 1, "entries": [{"node": "x", "until": 1}]}).encode(),
        json.dumps({"version": 1, "entries": [{"node": "0" * 64, "until": "x"}]}).encode(),
    ],
)
def test_a_damaged_file_bars_nobody(data: bytes | None) -> None:
    assert read_quarantine(data).entries(NOW) == []


def test_a_file_nested_deeper_than_can_be_read_bars_nobody() -> None:
    assert not read_quarantine(b'{"version":1,"entries":[],"x":' + b"[" * 20_000).entries(0.0)
