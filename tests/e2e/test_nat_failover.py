"""The sentinel that carries a generation between homes is killed: the answer is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.failover import kill_and_revive_sentinels, start_halves

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.town import NatTown

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HOMES = {"h1": "prohibit", "h2": "blackhole"}
SENTINELS = ("s1", "s2")


def test_an_answer_outlives_the_sentinel_that_carries_it(town_of: Callable[..., NatTown]) -> None:
    town = town_of(*SENTINELS, "o", homes=HOMES)
    start_halves(town, SENTINELS, tuple(HOMES))
    kill_and_revive_sentinels(town, SENTINELS, tuple(HOMES), rounds=2)
