"""Churn of real processes. Minutes of it: `python -m tests.e2e.churn --help`."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.e2e.churn import churn
from tests.e2e.churn_plan import BACK_S, Action, draw_actions
from tests.e2e.churn_report import table
from tests.e2e.own_cache import own_cache

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [*(f"host-{number}" for number in range(12)), "sentinel"]
STEADY = ["sentinel", "host-0", "host-1"]
MINUTES = float(os.environ.get("DIFFUSE_CHURN_MINUTES", "1"))
SEED = int(os.environ.get("DIFFUSE_CHURN_SEED", "1"))


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 600)
async def test_twelve_hosts_stand_a_churn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", own_cache(tmp_path))
    story = await churn(tmp_path, 12, SEED, 60 * MINUTES, 0.0)
    assert not story.problems, f"seed {SEED}\n{table(story)}\n" + "\n".join(story.problems)
    asked = sum(count for name, count in story.queries.items() if name.startswith("exit"))
    assert story.queries["exit 0"] >= 0.8 * asked, story.queries


def test_a_seed_draws_the_same_again_and_another_does_not() -> None:
    drawn = [draw_actions(seed, NAMES, STEADY, 300) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("seed", range(20))
def test_who_is_struck_is_there_and_most_are(seed: int) -> None:
    actions = draw_actions(seed, NAMES, STEADY, 300)
    assert all(0 < action.at < 300 for action in actions)
    struck: list[Action] = []
    for action in actions:
        away = [one for one in struck if one.at + one.lasts + BACK_S > action.at]
        if action.kind == "query":
            continue
        assert action.target not in {one.target for one in away}
        assert len(away) < len(NAMES) // 3
        assert action.kind == "pause" or action.target not in STEADY
        struck.append(action)
    kinds = Counter(action.kind for action in actions)
    assert set(kinds) == {"kill", "term", "pause", "query"}
    assert kinds["kill"] + kinds["term"] > 5
