from __future__ import annotations

import pytest

from diffuse_core.domain.pass_times import Spread, ms_text, stage_times, typical
from diffuse_core.domain.view import StageTiming


def one(wire: float, queue: float, compute: float) -> StageTiming:
    return StageTiming(wire, queue, compute)


def test_shares_and_ranks_of_each_stage() -> None:
    prompt = (one(0, 0, 900), one(0, 0, 900))
    passes = [prompt] + [(one(10, 0, 5), one(4, 1, float(ms))) for ms in range(1, 21)]
    first, second = stage_times(passes, 2)
    assert first.wire == Spread(10, 10)
    assert second.compute == Spread(10, 19)
    assert second.queue == Spread(1, 1)
    whole = 20 * (10 + 5 + 4 + 1) + sum(range(1, 21))
    assert first.parts == pytest.approx((200 / whole, 0, 100 / whole))
    assert first.share + second.share == pytest.approx(1)


def test_only_passes_of_this_route_count() -> None:
    two, three = (one(1, 1, 1),) * 2, (one(2, 2, 2),) * 3
    assert typical([two, three, two, three], 3) == [three, three]
    assert typical([two], 2) == [two]
    assert typical([three, ()], 2) == []
    assert stage_times([], 2) == ()
    assert stage_times([()], 0) == ()


def test_passes_that_took_no_time() -> None:
    (only,) = stage_times([(one(0, 0, 0),)], 1)
    assert only.share == 0
    assert only.wire == Spread(0, 0)


def test_figures_of_few_digits() -> None:
    assert [ms_text(ms) for ms in (0.021, 9.994, 9.996, 40.12, 99.96, 1203.4)] == [
        "0.02",
        "9.99",
        "10.0",
        "40.1",
        "100",
        "1203",
    ]
