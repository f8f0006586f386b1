"""Real processes on loopback of which some let nobody in: they serve through sentinels."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.e2e.failover import HALF, kill_and_revive_sentinels, start_halves
from tests.e2e.town import Town
from tests.services.tiny_model import ids, words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.services.tiny_model import TinyModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

TOKENS = 24
LONG = 1500
FREED_S = 10.0
RELAYED = ("--relay", "always")


@pytest.fixture
def town(tmp_path: Path, talkative: TinyModel) -> Iterator[Town]:
    with Town(tmp_path, talkative) as town:
        yield town


def answer(town: Town) -> set[tuple[str, str]]:
    """Ask; which nodes answered rightly, and how each was met."""
    given = town.asks("o", words(5), TOKENS)
    assert tuple(given["token_ids"]) == town.model.says(ids(5), TOKENS, ignore_eos=True)
    return {(step["node"], step["via"]) for step in given["route"]}


def test_a_host_that_lets_nobody_in_answers(town: Town) -> None:
    town.start_sentinels("s")
    town.run_host("h", *RELAYED)
    town.until(lambda: town.reserved("h", "s"))
    assert answer(town) == {(town.id_of("h"), "relay")}
    relayed = town.own_status("s")["telemetry"]["relay"]
    assert relayed["reservations"] == 1
    assert relayed["bytes_relayed"] > TOKENS
    town.until(lambda: town.idle("h"), FREED_S)
    with town.asking("o", words(5), LONG) as asking:
        asking.until_words(20)
        assert not town.idle("h")
        asking.process.send_signal(signal.SIGINT)
        assert asking.finish() == 130
        town.until(lambda: town.idle("h"), FREED_S)


def test_a_host_that_is_not_where_it_is_seen_finds_out_and_reserves(town: Town) -> None:
    town.start_sentinels("s")
    # A sentinel sees it at 127.0.0.1, where it does not listen.
    town.run_host("h", "--listen", "127.0.0.2:0")
    town.until(lambda: town.reserved("h", "s"))
    # Those who reach it at its own address still go straight there.
    assert answer(town) == {(town.id_of("h"), "direct")}


def test_relayed_halves_outlive_the_sentinel_between_them(town: Town) -> None:
    sentinels, hosts = ("s1", "s2"), ("h1", "h2")
    start_halves(town, sentinels, hosts, *RELAYED)
    assert answer(town) == {(town.id_of(host), "relay") for host in hosts}
    kill_and_revive_sentinels(town, sentinels, hosts, rounds=1)


def test_a_relayed_and_a_direct_half_answer_together(town: Town) -> None:
    town.start_sentinels("s")
    town.run_host("h", *HALF, *RELAYED)
    town.until(lambda: town.reserved("h", "s"))
    town.run_host("d", *HALF)
    town.until(lambda: town.reserved("d", viewer="s"))
    assert answer(town) == {(town.id_of("h"), "relay"), (town.id_of("d"), "direct")}
