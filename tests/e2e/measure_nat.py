"""Measures what relaying costs and how it heals: `python -m tests.e2e.measure_nat`, as root.

Machines are network namespaces on this one: no delay, no loss, and all share its cores.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.e2e.failover import HALF
from tests.e2e.namespaces import namespaces_missing
from tests.e2e.routers import Neighbourhood
from tests.e2e.town import NatTown
from tests.services.tiny_model import ids, make_tiny_model, words

CONTEXT = 2048
TURNS = 5
TOKENS = 300
LONG = 1500
SENTINELS = ("s1", "s2")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def compare(towns: dict[str, NatTown]) -> None:
    """The same question in turns to a host outside, and to one behind a router."""
    figures: dict[str, list[tuple[float, float]]] = {via: [] for via in towns}
    for _ in range(TURNS):
        for via, town in towns.items():
            given = town.asks("o", words(5), TOKENS)
            assert tuple(given["token_ids"]) == town.model.says(ids(5), TOKENS, ignore_eos=True)
            assert [step["via"] for step in given["route"]] == [via]
            times = given["timings"]
            figures[via].append((times["ttft_s"], times["tokens_per_s"]))
    for via, times in figures.items():
        first, rate = (statistics.median(column) for column in zip(*times, strict=True))
        say(f"{via}: first token after {first * 1000:.0f} ms, {rate:.0f} tokens/s")


def measure_cost(directory: Path) -> None:
    """Two networks that know nothing of each other, on the same machines."""
    model = make_tiny_model(directory / "tiny", CONTEXT)
    with ExitStack() as stack:
        around = stack.enter_context(Neighbourhood("s1", "s2", "d", "o", homes={"h": "blackhole"}))
        towns: dict[str, NatTown] = {}
        for via, sentinel, host in (("direct", "s1", "d"), ("relay", "s2", "h")):
            place = directory / via
            place.mkdir()
            town = towns[via] = stack.enter_context(NatTown(place, around, model))
            town.start_sentinels(sentinel)
            begun = time.monotonic()
            town.run_host(host)
            at = (sentinel,) if via == "relay" else ()
            usable = partial(town.reserved, host, *at, viewer=sentinel)
            town.until(usable)
            say(f"{via}: usable by others {time.monotonic() - begun:.1f} s after its start")
        compare(towns)


def measure_kill(directory: Path) -> None:
    """Kill the sentinel that carries a generation, then another one when it is back."""
    model = make_tiny_model(directory / "tiny", CONTEXT)
    homes = {"h1": "prohibit", "h2": "blackhole"}
    with (
        Neighbourhood(*SENTINELS, "o", homes=homes) as around,
        NatTown(directory, around, model) as town,
    ):
        town.start_sentinels(*SENTINELS)
        for home in homes:
            town.run_host(home, *HALF)
            took = town.until(lambda home=home: town.reserved(home, *SENTINELS))
            say(f"{home} met through both sentinels {took:.1f} s after it listens")
        whole = town.asks("o", words(5), LONG)
        say(f"undisturbed: {whole['timings']}")
        for _ in range(TURNS):
            kill_once(town, tuple(homes), whole["text"].split())


def kill_once(town: NatTown, homes: tuple[str, ...], right: list[str]) -> None:
    rest = {name: town.connections(name) for name in SENTINELS}
    with town.asking("o", words(5), LONG) as asking:
        asking.until_words(100)
        more = {name: town.connections(name) - rest[name] for name in SENTINELS}
        victim = max(SENTINELS, key=more.__getitem__)
        (survivor,) = (name for name in SENTINELS if name != victim)
        killed = town.kill(victim)
        code = asking.finish()
        same = asking.words == right
        stall = asking.longest_gap(killed)
    say(f"killed {victim}: exit code {code}, text right: {same}, stalled for {stall:.2f} s")
    for home in homes:
        town.until(lambda home=home: town.reserved(home, survivor, viewer=survivor))
    say(f"told to be met through {survivor} only: {time.monotonic() - killed:.1f} s after")
    again = town.asks("o", words(5), 100)
    say(f"the next query: {again['timings']} {again['events']}")
    town.revive_sentinel(victim)
    back = time.monotonic()
    for home in homes:
        town.until(lambda home=home: town.reserved(home, *SENTINELS))
    say(f"met through both again {time.monotonic() - back:.1f} s after it was back")


def main() -> None:
    """Measure all."""
    if reason := namespaces_missing():
        sys.exit(reason)
    for measure in (measure_cost, measure_kill):
        with tempfile.TemporaryDirectory() as directory:
            measure(Path(directory))


if __name__ == "__main__":
    main()
