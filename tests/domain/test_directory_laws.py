"""The directory's laws: in whatever order records arrive, all agree, and within bounds."""

from __future__ import annotations

import random

import msgspec
from domain_samples import identity, node, record, signed
from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_core.domain.directory import Directory
from diffuse_core.domain.records import MAX_RECORD_BYTES, SignedRecord, seal
from diffuse_core.domain.verdicts import Verdicts

LATEST = 5
NODES = 3
SOUND = [
    signed(number, sequence, version=version, left=sequence == 4)
    for number in range(1, NODES + 1)
    for sequence in range(1, LATEST + 1)
    for version in ("a", "b")
]
FUTURE = [signed(number, LATEST + 1) for number in range(1, NODES + 1)]
UNSOUND = [
    msgspec.structs.replace(SOUND[0], signature=bytes(64)),
    seal(record(1, 3), identity(2)),
    SignedRecord(bytes(MAX_RECORD_BYTES + 1), bytes(64)),
    SignedRecord(b"\x93", bytes(64)),
]
RECORDS = SOUND + FUTURE + UNSOUND
VERDICTS = Verdicts()
indices = st.lists(st.integers(0, len(RECORDS) - 1), max_size=20)


def _merged(arrivals: list[int]) -> dict[bytes, bytes]:
    """What is held after records that come a second apart, so that none comes too early."""
    known = Directory(random.Random(1), verdicts=VERDICTS)
    for now, index in enumerate(arrivals):
        known.admit(RECORDS[index], float(now), latest=LATEST)
    return {node: entry.signed.payload for node, entry in known.items()}


@settings(max_examples=150, derandomize=True, deadline=None)
@given(indices, indices, indices, st.randoms(use_true_random=False))
def test_merging_is_commutative_associative_and_idempotent(
    a: list[int], b: list[int], c: list[int], rng: random.Random
) -> None:
    assert _merged(a + b) == _merged(b + a)
    assert _merged(a + b + c) == _merged(c + a + b) == _merged(b + c + a)
    assert _merged(a + a) == _merged(a)
    shuffled = a + b + c
    rng.shuffle(shuffled)
    assert _merged(shuffled) == _merged(a + b + c)


@settings(max_examples=80, derandomize=True, deadline=None)
@given(indices)
def test_what_is_held_is_the_latest_sound_record_that_came(arrivals: list[int]) -> None:
    came = [VERDICTS.read(RECORDS[index]) for index in arrivals]
    sound = [one for one in came if one is not None and one.sequence <= LATEST]
    held = _merged(arrivals)
    assert set(held) == {one.node for one in sound}
    for about, payload in held.items():
        latest = max(one.sequence for one in sound if one.node == about)
        assert payload in {one.payload for one in SOUND}
        assert msgspec.msgpack.decode(payload)["sequence"] == latest


@settings(max_examples=80, derandomize=True, deadline=None)
@given(st.lists(indices, min_size=2, max_size=3))
def test_directories_that_exchange_what_they_hold_agree(heard: list[list[int]]) -> None:
    tables = []
    for arrivals in heard:
        table = Directory(random.Random(1), verdicts=VERDICTS)
        for now, index in enumerate(arrivals):
            table.admit(RECORDS[index], float(now), latest=LATEST)
        tables.append(table)
    for now in range(100, 100 + len(tables)):
        for giver in tables:
            for taker in tables:
                for _, entry in list(giver.items()):
                    taker.admit(entry.signed, float(now), latest=LATEST)
    views = [{about: entry.signed.payload for about, entry in one.items()} for one in tables]
    assert all(view == views[0] for view in views)
    assert len({table.buckets.summary() for table in tables}) == 1


steps = st.lists(
    st.tuples(
        st.sampled_from(["admit", "bury", "unearth", "meet", "expire"]),
        st.integers(1, 12),
        st.integers(1, 3),
    ),
    max_size=60,
)
MANY = {
    (number, sequence): signed(number, sequence, left=sequence == 2)
    for number in range(1, 13)
    for sequence in range(1, 4)
}


@settings(max_examples=120, derandomize=True, deadline=None)
@given(steps, st.floats(0.0, 4000.0))
def test_the_table_and_all_that_goes_with_it_keep_within_the_cap(
    happenings: list[tuple[str, int, int]], pause: float
) -> None:
    known = Directory(random.Random(1), max_nodes=5, verdicts=VERDICTS)
    now = 0.0
    for what, number, sequence in happenings:
        now += pause
        before = dict(known.items())
        match what:
            case "admit":
                known.admit(MANY[number, sequence], now)
            case "bury":
                known.bury(node(number), now)
            case "unearth":
                known.unearth(node(number))
            case "meet":
                known.meet(node(number))
            case _:
                known.expire(now)
        held = dict(known.items())
        forgotten = known.drain_forgotten()
        assert len(held) == len(known) <= 5
        assert set(forgotten) == before.keys() - held.keys()
        gone = {about for about, entry in held.items() if entry.gone_at is not None}
        left = {about for about, entry in held.items() if entry.record.left}
        assert set(known._gone) == gone >= left
        assert set(known.dead.all()) == gone - left
        assert set(known._unmet.all()) <= held.keys()
        alive = Directory(random.Random(1), verdicts=VERDICTS)
        for about in held.keys() - gone:
            alive.admit(held[about].signed, 0.0)
        assert known.buckets.summary() == alive.buckets.summary()
