"""The directory: merging in any order gives the same, and floods push nobody out."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from domain_samples import identity, node, record, signed
from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_core.domain import directory as module
from diffuse_core.domain.directory import TOMBSTONE_S, Directory
from diffuse_core.domain.records import MAX_RECORD_BYTES, SignedRecord, seal

if TYPE_CHECKING:
    import pytest

RECORDS = {
    (number, sequence): signed(number, sequence, left=sequence == 4)
    for number in range(1, 4)
    for sequence in range(1, 5)
}
keys = st.lists(st.sampled_from(sorted(RECORDS)), max_size=15)


def _merged(*batches: list[tuple[int, int]]) -> dict[bytes, int]:
    known = Directory()
    for key in (key for batch in batches for key in batch):
        known.admit(RECORDS[key], 0.0)
    return {node: entry.record.sequence for node, entry in known.items()}


@settings(max_examples=60)
@given(keys, keys, keys)
def test_merging_is_commutative_associative_and_idempotent(
    a: list[tuple[int, int]], b: list[tuple[int, int]], c: list[tuple[int, int]]
) -> None:
    assert _merged(a, b) == _merged(b, a)
    assert _merged(a, b, c) == _merged(c, a, b) == _merged(b, c, a)
    assert _merged(a, a) == _merged(a)
    shuffled = a + b + c
    random.Random(len(shuffled)).shuffle(shuffled)
    assert _merged(shuffled) == _merged(a, b, c)


def test_only_later_sequences_replace() -> None:
    known = Directory()
    outcomes = [known.admit(signed(1, sequence), 0.0) for sequence in (5, 4, 5, 6)]
    assert outcomes == ["new", "known", "known", "newer"]
    assert node(1) in known
    assert len(known) == 1


def test_two_records_of_one_sequence_are_counted_and_the_first_kept() -> None:
    known = Directory()
    known.admit(signed(1, 5, version="one"), 0.0)
    assert known.admit(signed(1, 5, version="two"), 0.0) == "equivocation"
    assert known.refusals["equivocation"] == 1
    entry = known.get(node(1))
    assert entry is not None
    assert entry.record.version == "one"


def test_forged_and_oversized_records_are_refused_and_counted() -> None:
    known = Directory()
    assert known.admit(seal(record(1), identity(2)), 0.0) == "unsound"
    assert known.admit(SignedRecord(bytes(MAX_RECORD_BYTES + 1), bytes(64)), 0.0) == "unsound"
    assert known.refusals["unsound"] == 2
    assert len(known) == 0


def test_a_record_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = module.open_record
    monkeypatch.setattr(module, "open_record", lambda one: calls.append(one) or real(one))
    known = Directory()
    for _ in range(3):
        known.read(signed(1))
        known.read(SignedRecord(b"junk", bytes(64)))
    assert len(calls) == 2


def test_verdicts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VERDICTS", 3)
    calls = []
    real = module.open_record
    monkeypatch.setattr(module, "open_record", lambda one: calls.append(one) or real(one))
    known = Directory()
    for number in (1, 2, 3, 4, 1):
        known.read(signed(number))
    assert len(calls) == 5


def test_tombstones_age_and_are_forgotten() -> None:
    known = Directory()
    known.admit(signed(1), 0.0)
    known.admit(signed(2, left=True), 0.0)
    known.admit(signed(3), 0.0)
    known.bury(node(1), 10.0)
    known.bury(node(1), 500.0)
    known.bury(node(9), 10.0)
    known.bury(node(3), 10.0)
    known.unearth(node(3))
    known.unearth(node(2))
    known.unearth(node(9))
    known.expire(TOMBSTONE_S)
    assert known.drain_forgotten() == [node(2)]
    known.expire(TOMBSTONE_S + 10)
    assert known.drain_forgotten() == [node(1)]
    assert known.drain_forgotten() == []
    assert [one for one, _ in known.items()] == [node(3)]


def test_a_full_table_makes_room_only_from_tombstones() -> None:
    known = Directory(max_nodes=3)
    for number in (1, 2, 3):
        known.admit(signed(number), 0.0)
    assert known.admit(signed(4), 1.0) == "full"
    assert known.refusals["full"] == 1
    known.bury(node(2), 2.0)
    known.bury(node(1), 3.0)
    assert known.admit(signed(4), 4.0) == "new"
    assert known.drain_forgotten() == [node(2)]
    assert known.admit(signed(3, 2), 4.0) == "newer"
