"""Measures what relaying costs and how it heals: `python -m tests.e2e.measure_nat`, as root.

Machines are network namespaces on this one: no delay, no loss, and all share its cores.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
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


def compare(town: NatTown) -> None:
    """The same questions to a whole host outside and, after it left, to one behind a router."""
    figures: dict[str, list[tuple[float, float]]] = {}
    for _ in range(TURNS):
        for model in ("d", "h"):
            given = town.asks("o", words(5), TOKENS, "--model", f"tiny-{model}")
            assert tuple(given["token_ids"]) == town.model.says(ids(5), TOKENS, ignore_eos=True)
            (step,) = given["route"]
            times = (given["timings"]["ttft_s"], given["timings"]["tokens_per_s"])
            figures.setdefault(step["via"], []).append(times)
    for via, times in figures.items():
        first, rate = (statistics.median(column) for column in zip(*times, strict=True))
        say(f"{via}: first token after {first * 1000:.0f} ms, {rate:.0f} tokens/s")


def measure_cost(directory: Path) -> None:
    """Two models of the same numbers, so that each question has just one route."""
    for name in ("d", "h"):
        model = make_tiny_model(directory / f"tiny-{name}", CONTEXT)
    with (
        Neighbourhood("s1", "d", "o", homes={"h": "blackhole"}) as around,
        NatTown(directory, around, model) as town,
    ):
        town.start_sentinels("s1")
        begun: dict[str, float] = {}
        for name in ("d", "h"):
            begun[name] = time.monotonic()
            what = ("--model", str(directory / f"tiny-{name}"), "--threads", "1")
            town.run_node(name, "host", *what, "--dtype", "fp32")
            at = ("s1",) if name == "h" else ()
            town.until(lambda name=name, at=at: town.reserved(name, *at, viewer="s1"))
            say(f"{name} usable by others {time.monotonic() - begun[name]:.1f} s after its start")
        compare(town)


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
