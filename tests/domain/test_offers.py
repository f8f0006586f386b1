"""How many circuits a sentinel may have a node join, and when it is given up."""

from __future__ import annotations

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.offers import (
    JOIN_BURST,
    JOINS_PER_S,
    LAST,
    MAX_SENTINELS,
    MOST_FAILED,
    Offers,
)

A, B = NodeId(b"a" * 32), NodeId(b"b" * 32)


def test_a_crowd_may_come_at_once_and_a_flood_comes_to_so_much_a_second() -> None:
    offers = Offers()
    assert sum(offers.may_join(A, 0.0) for _ in range(500)) == JOIN_BURST
    assert offers.may_join(B, 0.0), "others have an allowance of their own"
    at = [step / 100 for step in range(1, 1001)]
    assert sum(offers.may_join(A, now) for now in at) == 10 * JOINS_PER_S


def test_a_flood_is_answered_with_silence() -> None:
    offers = Offers()
    assert sum(offers.may_decline(A, 0.0) for _ in range(500)) == JOIN_BURST
    assert offers.may_join(A, 0.0)


def test_a_sentinel_whose_circuits_lead_nowhere_is_of_no_use() -> None:
    offers = Offers()
    for _ in range(2):
        told = [offers.joined(A, proven=False) for _ in range(MOST_FAILED)]
        assert told == [True] * (MOST_FAILED - 1) + [False]
    assert offers.joined(B, proven=False)


def test_one_success_among_the_last_ones_clears_it() -> None:
    offers = Offers()
    for _ in range(MOST_FAILED - 1):
        assert offers.joined(A, proven=False)
    assert offers.joined(A, proven=True)
    for _ in range(LAST - 1):
        assert offers.joined(A, proven=False)
    assert not offers.joined(A, proven=False)


def test_what_is_remembered_is_bounded() -> None:
    offers = Offers()
    for number in range(2 * MAX_SENTINELS):
        node = NodeId(number.to_bytes(32))
        offers.joined(node, proven=False)
        offers.may_join(node, 0.0)
        offers.may_decline(node, 0.0)
    assert len(offers._proven) == len(offers._joins) == len(offers._declines) == MAX_SENTINELS
