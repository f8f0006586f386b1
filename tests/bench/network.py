"""What a simulated network of a thousand nodes does, against its targets.

    python tests/bench/network.py [ROW ...] [--nodes 1000] [--seed 1] [--json]

Rows: news, join, killed, silent, pauses, idle, busy, halves, deaf, liars; all when none is named.
One core, virtual time, the very gossip code that nodes run; delays 1 to 10 ms unless a row says
otherwise. `pauses` takes a quarter of an hour and more, the others a minute or a few each.
A row whose figures miss a target says so, and how to replay it; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import operator
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "simulation"))

import scenarios
import scenarios_of_strife

if TYPE_CHECKING:
    from collections.abc import Callable

    Figures = dict[str, float]

SMALL = 100
"""The network whose traffic that of the large one is compared with."""
HOUR_S = 3600.0
_COMPARE = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Row:
    """One line of the table: how to find its figures, and what they are to be."""

    conditions: str
    find: Callable[[int, int, float], Figures]
    targets: dict[str, tuple[str, float]]


def _traffic(seed: int, nodes: int, *, busy: bool) -> Figures:
    found = scenarios.traffic(seed, nodes, busy=busy)
    small = scenarios.traffic(seed, SMALL, busy=busy)["bytes_per_node_and_s"]
    ratio = found["bytes_per_node_and_s"] / small
    return found | {f"bytes_per_node_and_s_at_{SMALL}": small, "ratio": ratio}


_GONE = {"gone_p50_s": ("<=", 16.0), "gone_p99_s": ("<=", 30.0), "false_deaths": ("<=", 0.0)}
_BYTES = {"bytes_per_node_and_s": ("<=", 21_000.0), "ratio": ("<=", 2.0)}
ROWS = {
    "news": Row(
        "10 % loss; rounds of 200 ms until a new record is known, the worst of 5 records",
        lambda seed, nodes, _: scenarios.rounds_to_know(seed, nodes),
        {"rounds_99": ("<=", 9.0), "rounds_all": ("<=", 11.0)},
    ),
    "join": Row(
        "10 % loss; rounds until a newcomer knows all and is known to all",
        lambda seed, nodes, _: scenarios.rounds_to_join(seed, nodes),
        {"rounds_newcomer_knows": ("<=", 7.0), "rounds_newcomer_known": ("<=", 7.0)},
    ),
    "killed": Row(
        "10 processes killed one after the other, their machines refuse; all observers",
        lambda seed, nodes, _: scenarios.seconds_to_be_gone(seed, nodes, silent=False),
        _GONE,
    ),
    "silent": Row(
        "10 machines fall silent one after the other; all observers",
        lambda seed, nodes, _: scenarios.seconds_to_be_gone(seed, nodes, silent=True),
        _GONE,
    ),
    "pauses": Row(
        "10 % loss; 5 % of the nodes pause for 1-5 s every 20-60 s; false is a death of a node "
        "that runs, paused or not, in any running node's view",
        lambda seed, nodes, seconds: scenarios.false_deaths(seed, nodes, seconds=seconds),
        {"false_deaths": ("<=", 0.0)},
    ),
    "idle": Row(
        "no loss, nothing happens; bytes with framing, for 2 minutes",
        lambda seed, nodes, _: _traffic(seed, nodes, busy=False),
        _BYTES,
    ),
    "busy": Row(
        "no loss, all are hosts of an 8B model whose load changes every 2 s",
        lambda seed, nodes, _: _traffic(seed, nodes, busy=True),
        _BYTES,
    ),
    "halves": Row(
        "two halves cut off for 5 minutes, then healed; flaps are deaths after that",
        lambda seed, nodes, _: scenarios_of_strife.partition(seed, nodes),
        {"one_view_s": ("<=", 30.0), "flaps": ("<=", 0.0)},
    ),
    "deaf": Row(
        "1 % of the nodes lose half of what is sent to them, for 5 minutes",
        lambda seed, nodes, _: scenarios_of_strife.half_deaf(
            seed, nodes, deaf=max(1, nodes // 100)
        ),
        {"dead_for_others": ("<=", 0.0), "dead_for_the_deaf": ("<=", 0.0)},
    ),
    "liars": Row(
        "30 % lie twice a second for a minute: forged, replayed, future, oversized and two-faced "
        "records, made-up nodes, false deaths, stray acks; they answer no session",
        lambda seed, nodes, _: scenarios_of_strife.liars(seed, nodes),
        {
            "forged_held": ("<=", 0.0),
            "future_held": ("<=", 0.0),
            "honest_held_dead_by_honest": ("<=", 0.0),
            "routes_found": (">=", 0.999),
        },
    ),
}


def misses(row: Row, figures: Figures) -> list[str]:
    """The targets that the figures miss, in words."""
    found = [
        f"{name} {figures[name]:.4g} is not {sign} {bound:g}"
        for name, (sign, bound) in row.targets.items()
        if not _COMPARE[sign](figures[name], bound)
    ]
    if figures.get("largest_table", 0.0) > figures.get("table_cap", 0.0):
        found.append("a table passed its cap")
    return found


def report(name: str, row: Row, figures: Figures, missed: list[str], given: Any) -> None:
    """One row for people."""
    print(f"\n{name}: {row.conditions}", flush=True)
    for figure, value in figures.items():
        sign, bound = row.targets.get(figure, ("", 0.0))
        goal = f"   (target {sign} {bound:g})" if sign else ""
        print(f"  {figure:34} {value:12.4g}{goal}", flush=True)
    for miss in missed:
        print(f"  MISSED: {miss}")
    if missed:
        print(f"  replay: network.py {name} --nodes {given.nodes} --seed {given.seed}", flush=True)


def main() -> int:
    """Run the rows and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=HOUR_S, help="simulated, of `pauses`")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if unknown := set(given.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    results: dict[str, Any] = {
        "nodes": given.nodes,
        "seed": given.seed,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "rows": {},
    }
    if not given.json:
        print(f"{given.nodes} nodes, seed {given.seed}, Python {results['python']}")
    failed = False
    for name in given.rows or ROWS:
        row, start = ROWS[name], time.process_time()
        figures = row.find(given.seed, given.nodes, given.seconds)
        missed = misses(row, figures)
        failed = failed or bool(missed)
        figures["cpu_s"] = time.process_time() - start
        results["rows"][name] = {
            "conditions": row.conditions,
            "figures": figures,
            "missed": missed,
        }
        if not given.json:
            report(name, row, figures, missed, given)
    if given.json:
        print(json.dumps(results, indent=1))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
