"""Placement at scale, by simulation: joining, a massacre, and churn. By hand; takes minutes.

    python tests/bench/placement.py --hosts 200 --churn 30

Hosts of lognormal capacity join within a minute in random order, over real gossip under a
virtual clock. Then a fifth is killed at once, and after that a tenth goes each minute (half of
them killed, some of those with their machine) and as many come. Printed are: when the model was
covered, beside when some assignment of those that had joined could first have covered it; the
fewest holders of a layer beside an upper bound of what any assignment could give; how long lost
layers were without a holder; and moves for each departure.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).parents[1] / "simulation"),
    str(Path(__file__).parents[2]),
]

from placement_models import LARGE, SMALL
from placement_scenarios import Scenario, Setting

MODELS = {"small": SMALL, "large": LARGE}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--model", choices=MODELS, default="small", help="32 or 80 layers")
    parser.add_argument("--median", type=float, default=3.0, help="layers that half can hold")
    parser.add_argument("--sigma", type=float, default=0.8, help="width of the lognormal")
    parser.add_argument("--load", type=float, default=30.0, help="seconds that a load takes")
    parser.add_argument("--loss", type=float, default=0.0, help="share of messages lost")
    parser.add_argument("--target", type=int, default=2, help="replicas aimed at")
    parser.add_argument("--churn", type=float, default=30.0, help="minutes")
    parser.add_argument(
        "--shared-view", action="store_true", help="news with delays instead of gossip: faster"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    given = parser.parse_args()
    setting = Setting(
        given.hosts,
        MODELS[given.model],
        given.median,
        given.sigma,
        given.load,
        given.loss,
        given.target,
        gossip=not given.shared_view,
    )
    for seed in given.seeds:
        started = time.perf_counter()
        print(
            f"--- seed {seed}: {setting.count} hosts, {given.model}, median {given.median} layers"
        )
        _run(Scenario(seed, setting), given.churn)
        print(f"({time.perf_counter() - started:.0f} s)", flush=True)


def _run(scenario: Scenario, minutes: float) -> None:
    scenario.join_all()
    _tell_joined(scenario)
    scenario.decimate(0.2)
    scenario.net.run(120.0)
    _tell("a fifth killed", scenario)
    moves, departures = scenario.hosts.moves, scenario.departures
    for _ in range(max(0, round(minutes / 5))):
        scenario.churn(0.1, 5.0)
        _tell("churn", scenario)
    scenario.settle()
    _tell("at rest", scenario)
    gone = scenario.departures - departures
    if gone:
        print(
            f"moves for each departure in the churn: {(scenario.hosts.moves - moves) / gone:.2f}"
        )


def _tell_joined(scenario: Scenario) -> None:
    hosts, bound = scenario.hosts, scenario.bound
    fewest, most = min(hosts.counts()), max(hosts.counts())
    could, was = scenario.coverable_at or -1.0, hosts.covered_at or -1.0
    print(
        f"coverable at {could:.1f} s, covered at {was:.1f} s; at rest: fewest holders {fewest} of "
        f"at most {bound} ({fewest / max(1, bound):.2f}), most {most}; claims {hosts.claims}, "
        f"moves {hosts.moves}",
        flush=True,
    )


def _tell(what: str, scenario: Scenario) -> None:
    hosts, load = scenario.hosts, scenario.setting.load_s
    gaps = sorted(hosts.gaps)
    middle = gaps[len(gaps) // 2] if gaps else 0.0
    print(
        f"{scenario.net.now:6.0f} s {what}: {len(hosts.living())} hosts, fewest holders "
        f"{min(hosts.counts())} of at most {scenario.bound}; layers lost {len(gaps)}, without a "
        f"holder for {middle:.0f} s (median), {hosts.longest_gap():.0f} s (longest, "
        f"{hosts.longest_gap() / load:.1f} loads); moves {hosts.moves}, departures "
        f"{scenario.departures}",
        flush=True,
    )


if __name__ == "__main__":
    main()
