"""A stage is lost that nobody can replace: it is waited for, and what was said is kept."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.town import Town
from tests.services.tiny_model import LAYERS, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.tiny_model import TinyModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

HALF = LAYERS // 2
TOKENS = 1900
SOME = 60
GRACE_S = 2.0
FOUND_OUT_S = 10.0
"""That nobody answers any more; and to end."""
LONG_GRACE = ("--grace", "60")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory, talkative: TinyModel) -> Iterator[Town]:
    """Two hosts of half of the model each, the second of which goes."""
    with Town(tmp_path_factory.mktemp("town"), talkative) as town:
        town.start_sentinels("s")
        start_half(town, "stays")
        yield town


def start_half(town: Town, host: str) -> None:
    town.run_host(host, "--max-layers", str(HALF))
    town.until(lambda: town.own_status(host)["telemetry"]["stage"] == "ready")


@pytest.fixture(autouse=True)
def _both_halves(town: Town) -> None:
    if "goes" not in town.running or town.running["goes"].poll() is not None:
        start_half(town, "goes")


def lost_layers(town: Town) -> str:
    """Those of the host that goes, as they are written."""
    node = town.node(town.own_status("goes"), "goes")
    assert node is not None
    start, end = node["slice"]
    return f"{start}:{end}"


def test_what_was_said_is_kept_and_the_error_names_the_layers(town: Town) -> None:
    missing = lost_layers(town)
    right = town.asks("o", words(5), TOKENS)["text"].split()
    told_right = town.asks("o", words(7), TOKENS)["token_ids"]
    grace = ("--grace", f"{GRACE_S:g}")
    with (
        town.asking("o", words(5), TOKENS, *grace) as plain,
        town.asking("o", words(7), TOKENS, *grace, "--json") as told,
    ):
        plain.until_words(SOME)
        town.until(lambda: town.own_status("goes")["telemetry"]["sessions"] == 2)
        killed = town.kill("goes")
        assert plain.finish() != 0
        assert GRACE_S < time.monotonic() - killed < GRACE_S + FOUND_OUT_S
        assert told.finish() != 0
    assert SOME <= len(plain.words) < TOKENS
    assert plain.words == right[: len(plain.words)]
    answer = json.loads(" ".join(told.words))
    said = answer["token_ids"]
    assert 0 < len(said) < TOKENS
    assert said == told_right[: len(said)]
    for error in (plain.errors, answer["error"]):
        assert f"no host that answers holds layers {missing} of {LAYERS}" in error
    town.until(lambda: town.idle("stays"))


def test_the_answer_goes_on_when_the_lost_one_comes_back_in_time(town: Town) -> None:
    right = town.asks("o", words(5), TOKENS)["text"].split()
    with town.asking("o", words(5), TOKENS, *LONG_GRACE) as asking:
        asking.until_words(SOME)
        town.kill("goes")
        start_half(town, "goes")
        assert asking.finish() == 0, asking.errors
    assert asking.words == right
    town.until(lambda: town.idle("stays"))
