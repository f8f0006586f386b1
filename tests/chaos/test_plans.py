"""Plans: the same for the same seed, and such that a network stands them."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from tests.chaos.fault_plan import ALONE, BACK_S, DECK, ENDING, Cast, Fault, digest, draw_faults
from tests.chaos.load_plan import draw_asks, first_asks

HOSTS = tuple(f"host-{number}" for number in range(6))
SENTINELS = ("sentinel-a", "sentinel-b")
CAST = Cast(
    HOSTS,
    SENTINELS,
    ("node-0", "serve-0"),
    frozenset((*HOSTS[:-1], *SENTINELS)),
    frozenset(("host-0", "sentinel-a")),
)
SECONDS = 900.0


def faults(seed: int) -> tuple[Fault, ...]:
    return draw_faults(seed, CAST, SECONDS)


def test_a_seed_draws_the_same_again_and_another_does_not() -> None:
    assert faults(1) == faults(1) != faults(2)
    assert first_asks(1, ("query",)) == first_asks(1, ("query",)) != first_asks(2, ("query",))
    assert digest(faults(1)) == digest(faults(1)) != digest(faults(2))


@pytest.mark.parametrize("seed", range(10))
def test_who_is_struck_is_there_and_most_are(seed: int) -> None:
    drawn = faults(seed)
    assert list(drawn) == sorted(drawn, key=lambda fault: fault.at)
    until: dict[str, float] = {}
    for fault in drawn:
        away = {name for name, at in until.items() if at > fault.at}
        if fault.kind in ALONE:
            assert not away
        for name in fault.targets[:1]:
            assert name not in away
            assert fault.kind not in ENDING or name not in CAST.steady
            until[name] = fault.at + fault.lasts + BACK_S
            away.add(name)
        assert len(away & set(HOSTS)) <= len(HOSTS) // 3
        assert not set(SENTINELS) <= away
    kinds = Counter(fault.kind for fault in drawn)
    assert set(kinds) >= set(DECK)
    assert kinds["rest"] >= 3


def test_clients_do_all_that_clients_do() -> None:
    asks = list(itertools.islice(draw_asks(1, "query"), 400))
    assert {ask.end for ask in asks} == {"whole", "tokens", "seconds"}
    assert {ask.blow for ask in asks} == {"", "kill", "term", "int", "pause"}
    assert {ask.count for ask in asks} == {1, 2, 3}
    assert max(ask.side_by_side for ask in asks) > 3
    assert all(0 <= ask.which < 1 for ask in asks)
