"""Stages struck in the middle of answers. More of it: `python -m tests.e2e.kill_stages`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.e2e.kill_plan import PREFILL, TWO, Blow, Strike, draw_strikes
from tests.e2e.kill_report import KillReport, Outcome, percentile
from tests.e2e.kill_stages import kill_stages, options
from tests.e2e.own_cache import own_cache

if TYPE_CHECKING:
    from pathlib import Path

KILLS = "4"
LENGTHS = (20, 300)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_struck_answers_are_the_undisturbed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", own_cache(tmp_path))
    given = options(["--kills", KILLS, "--replicas", "2", "--seed", "3"])
    report = await kill_stages(tmp_path, given, LENGTHS)
    assert not report.problems, report.text()
    assert report.blows >= 3, report.text()


def test_a_seed_draws_the_same_again_and_another_does_not() -> None:
    assert draw_strikes(1, 50) == draw_strikes(1, 50) != draw_strikes(2, 50)


def test_so_many_blows_are_drawn_and_of_every_kind() -> None:
    strikes = draw_strikes(1, 1000)
    blows = [blow for strike in strikes for blow in strike.blows]
    assert len(blows) == 1000
    kinds = Counter(blow.kind for blow in blows)
    assert set(kinds) == {"kill", "stop", "cut", "swallow"}
    assert kinds["kill"] > 300
    moments = Counter(strike.moment for strike in strikes)
    assert moments["prefill"] == pytest.approx(PREFILL * len(strikes), rel=0.2)
    both = [strike for strike in strikes if len(strike.blows) == 2]
    assert len(both) == pytest.approx(TWO * len(strikes), rel=0.3)
    assert {blow.after_s > 0 for strike in both for blow in strike.blows[1:]} == {True, False}


def outcome(stall: float | None, *, identical: bool = True, problem: str = "") -> Outcome:
    strike = Strike(1, 20, sampled=False, moment="decode", at=0.5, blows=(Blow("kill", 0.0),))
    return Outcome(strike, (("host-1", "kill"),), identical, stall, (), problem)


def test_a_report_tells_what_was_not_the_same() -> None:
    good, wrong = outcome(0.5), outcome(1.5, identical=False)
    failed = outcome(None, identical=False, problem="StagesLost: all")
    report = KillReport(1, "tiny", [good, wrong, failed])
    assert report.stalls() == {"kill": [0.5, 1.5]}
    assert len(report.problems) == 2
    assert "3 answers, of which 1 identical" in report.text()
    assert report.plain()["stalls"]["kill"]["max_s"] == 1.5
    assert not KillReport(1, "tiny", [good]).problems
    assert KillReport(1, "tiny", [good], ["host-1 still holds a session"]).problems


def test_percentiles_are_of_what_was_seen() -> None:
    seen = [float(number) for number in range(1, 201)]
    assert (percentile(seen, 50), percentile(seen, 99), percentile(seen, 100)) == (100, 198, 200)
    assert percentile([7.0], 99) == 7.0
