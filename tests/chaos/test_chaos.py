"""Half a minute of chaos. Minutes of it: `python -m tests.chaos --help`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.fault_plan import SHORT
from tests.chaos.questions import of_tiny
from tests.chaos.story import Options, Story
from tests.e2e.own_cache import own_cache
from tests.services.tiny_model import LAYERS, make_tiny_model

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 20.0
CLIENTS = ("client", "client", "app", "query", "api")


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_every_answer_is_right_while_things_go_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", own_cache(tmp_path))
    answers = of_tiny(make_tiny_model(tmp_path / "tiny", 512), longest=200)
    story = Story(tmp_path, Options(1, SECONDS, 4, LAYERS, SHORT, CLIENTS), answers)
    await story.run()
    assert not story.ledger.violations, story.table + "\n" + "\n".join(story.ledger.violations)
    assert story.ledger.counts["whole"] >= len(CLIENTS)
    assert sum(story.ledger.faults.values()) >= 2
