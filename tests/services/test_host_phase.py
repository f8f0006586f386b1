"""How far a Host is: what the owner's screen shows while a Slice is brought here and loaded."""

from __future__ import annotations

import pytest

from diffuse_core.domain.machine import HostProgress
from diffuse_core.domain.planner import Plan
from diffuse_core.domain.slices import Slice
from diffuse_core.services.host_phase import MAX_REASON, HostPhase

PART = Slice(12, 18)
WEIGHTS = {"weights": 600, "kv_reserve": 50, "embedding": 100, "head": 300, "total": 1050}


def test_from_the_first_look_to_ready() -> None:
    where = HostPhase()
    assert where.progress() is None
    where.enter("reading the model", "reading")
    where.fraction = 0.25
    assert where.progress() == HostProgress("reading", 0.25)
    where.begin(Plan(PART, "fills the gap 12:18", WEIGHTS))
    assert where.reason == "fills the gap 12:18"
    assert where.progress() == HostProgress("loading", 0.0, PART, 0, 1000)
    where.downloaded(0.4)
    assert where.text == "downloading 12:18"
    assert where.progress() == HostProgress("downloading", 0.4, PART, 400, 1000)
    where.downloaded(1.0)
    assert where.progress() == HostProgress("loading", 0.0, PART, 0, 1000)
    where.fraction = 0.9
    assert where.progress() == HostProgress("loading", 0.9, PART, 900, 1000)
    where.enter("ready")
    assert where.progress() is None
    assert where.reason
    where.withdrawn()
    assert where.reason == ""


@pytest.mark.parametrize(("told", "shown"), [(-0.5, 0.0), (1.7, 1.0)])
def test_no_more_than_all_of_it(told: float, shown: float) -> None:
    where = HostPhase()
    where.begin(Plan(PART, "x" * 1000, WEIGHTS))
    assert len(where.reason) == MAX_REASON
    where.fraction = told
    assert where.progress() == HostProgress("loading", shown, PART, int(1000 * shown), 1000)
