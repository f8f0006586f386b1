"""The directory: what a record changes, and that floods push nobody out."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from domain_samples import identity, node, record, signed

from diffuse_core.domain.directory import TOMBSTONE_S, UPDATE_BURST, Directory
from diffuse_core.domain.records import MAX_RECORD_BYTES, SignedRecord, seal

if TYPE_CHECKING:
    import pytest


def test_only_later_sequences_replace() -> None:
    known = Directory(random.Random(1))
    outcomes = [known.admit(signed(1, sequence), 0.0) for sequence in (5, 4, 5, 6)]
    assert outcomes == ["new", "known", "known", "newer"]
    assert node(1) in known
    assert len(known) == 1


def test_of_two_records_of_one_sequence_the_same_one_is_kept_everywhere() -> None:
    one, two = signed(1, 5, version="one"), signed(1, 5, version="two")
    kept = set()
    for first, second in ((one, two), (two, one)):
        known = Directory(random.Random(1))
        known.admit(first, 0.0)
        assert known.admit(second, 0.0) == "equivocation"
        assert known.refusals["equivocation"] == 1
        entry = known.get(node(1))
        assert entry is not None
        assert entry.two_faced
        kept.add(entry.record.version)
    assert len(kept) == 1


def test_the_same_bytes_under_another_valid_signature_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("diffuse_core.domain.records.verify", lambda *_: True)
    known = Directory(random.Random(1))
    known.admit(signed(1, 5), 0.0)
    assert known.admit(SignedRecord(signed(1, 5).payload, bytes(64)), 0.0) == "known"
    assert known.refusals.total() == 0


def test_what_lies_in_the_future_is_refused_and_gives_way() -> None:
    known = Directory(random.Random(1))
    assert known.admit(signed(1, 50), 0.0, latest=40) == "future"
    assert known.refusals["future"] == 1
    assert known.admit(signed(1, 50), 0.0, latest=60) == "new"
    assert known.admit(signed(1, 49), 0.0, latest=60) == "known"
    assert known.admit(signed(1, 45), 0.0, latest=48) == "newer"
    assert known.admit(signed(1, 44), 0.0, latest=48) == "known"


def test_updates_that_come_too_often_are_taken_later() -> None:
    known = Directory(random.Random(1))
    outcomes = [known.admit(signed(1, sequence), 0.0) for sequence in range(UPDATE_BURST + 2)]
    assert outcomes == ["new", *["newer"] * UPDATE_BURST, "early"]
    assert known.refusals["early"] == 1
    assert known.admit(signed(1, 20), 0.5) == "early"
    assert known.admit(signed(1, 20), 1.0) == "newer"
    assert known.admit(signed(1, 21, left=True), 1.0) == "newer", "a farewell is never early"
    assert known.admit(signed(1, 22), 1.0) == "early"


def test_forged_and_oversized_records_are_refused_and_counted() -> None:
    known = Directory(random.Random(1))
    assert known.admit(seal(record(1), identity(2)), 0.0) == "unsound"
    assert known.admit(SignedRecord(bytes(MAX_RECORD_BYTES + 1), bytes(64)), 0.0) == "unsound"
    assert known.refusals["unsound"] == 2
    assert len(known) == 0


def test_tombstones_age_and_are_forgotten() -> None:
    known = Directory(random.Random(1))
    known.admit(signed(1), 0.0)
    known.admit(signed(2, left=True), 0.0)
    known.admit(signed(3), 0.0)
    known.bury(node(1), 10.0)
    known.bury(node(1), 500.0)
    known.bury(node(9), 10.0)
    known.bury(node(3), 10.0)
    assert sorted(known.dead.all()) == sorted([node(1), node(3)])
    known.unearth(node(3))
    known.unearth(node(2))
    known.unearth(node(9))
    assert (known.dead.all(), known.revived) == ([node(1)], 1)
    known.expire(TOMBSTONE_S)
    assert known.drain_forgotten() == [node(2)]
    known.expire(TOMBSTONE_S + 10)
    assert known.drain_forgotten() == [node(1)]
    assert known.drain_forgotten() == []
    assert [one for one, _ in known.items()] == [node(3)]


def test_a_full_table_makes_room_by_tombstones_then_by_nodes_never_met() -> None:
    known = Directory(random.Random(1), max_nodes=3)
    for number in (1, 2, 3):
        known.admit(signed(number), 0.0)
        known.meet(node(number))
    assert known.admit(signed(4), 1.0) == "full"
    assert known.refusals["full"] == 1
    known.bury(node(2), 2.0)
    known.bury(node(1), 3.0)
    assert known.admit(signed(4), 4.0) == "new"
    assert known.drain_forgotten() == [node(2)]
    assert known.admit(signed(3, 2), 4.0) == "newer"
    assert known.admit(signed(5), 5.0) == "new"
    assert known.drain_forgotten() == [node(1)]
    known.meet(node(5))
    assert known.admit(signed(6), 6.0) == "new"
    assert known.drain_forgotten() == [node(4)]
