"""The sentinel that carries a generation is killed in the middle of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.services.tiny_model import LAYERS, ids, words

if TYPE_CHECKING:
    from tests.e2e.town import Town

HALF = ("--max-layers", str(LAYERS // 2))
TOKENS = 1500
EARLY = 100
STALL_S = 15.0
AT_ONCE_S = 8.0
MOVED_S = 30.0


def start_halves(
    town: Town, sentinels: tuple[str, ...], hosts: tuple[str, ...], *extra: str
) -> None:
    """Start sentinels, and hosts of half of the model each that are met through all of them."""
    town.start_sentinels(*sentinels)
    for host in hosts:
        town.run_host(host, *HALF, *extra)
        wait_for_reservations(town, (host,), sentinels)


def wait_for_reservations(
    town: Town, hosts: tuple[str, ...], at: tuple[str, ...], viewer: str = ""
) -> None:
    """Wait until hosts are met through just these sentinels, as `viewer` or one of them tells."""
    for host in hosts:
        town.until(lambda host=host: town.reserved(host, *at, viewer=viewer), MOVED_S)


def kill_and_revive_sentinels(
    town: Town, sentinels: tuple[str, ...], hosts: tuple[str, ...], rounds: int
) -> None:
    """Kill the busier sentinel during a generation, each round, and start it again."""
    whole = town.asks("o", words(5), TOKENS)
    assert tuple(whole["token_ids"]) == town.model.says(ids(5), TOKENS, ignore_eos=True)
    for _ in range(rounds):
        before = {name: len(town.log(name)) for name in sentinels}
        victim = kill_in_the_middle(town, sentinels, whole["text"].split())
        (survivor,) = (name for name in sentinels if name != victim)
        wait_for_reservations(town, hosts, (survivor,), survivor)
        town.revive_sentinel(victim)
        wait_for_reservations(town, hosts, sentinels)
        since = town.log(survivor)[before[survivor] :]
        assert not [host for host in hosts if f"{town.id_of(host)[:8]} died" in since], since


def kill_in_the_middle(town: Town, sentinels: tuple[str, ...], right: list[str]) -> str:
    """Kill the busier sentinel during a generation; its name."""
    rest = {name: town.connections(name) for name in sentinels}
    with town.asking("o", words(5), TOKENS) as asking:
        asking.until_words(EARLY)
        more = {name: town.connections(name) - rest[name] for name in sentinels}
        victim = max(sentinels, key=more.__getitem__)
        # A circuit takes two connections; the client's look at the network takes one.
        assert more[victim] >= 2, more
        killed = town.kill(victim)
        assert len(asking.words) < TOKENS // 2
        assert asking.finish() == 0, asking.errors
        assert asking.words == right
        assert asking.longest_gap(killed) < STALL_S
    begun = time.monotonic()
    again = town.asks("o", words(5), EARLY)
    assert time.monotonic() - begun < AT_ONCE_S
    assert tuple(again["token_ids"]) == town.model.says(ids(5), EARLY, ignore_eos=True)
    return victim
