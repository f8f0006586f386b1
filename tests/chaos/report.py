"""The figures of a run, for people."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from tests.chaos.judge import MIB, second_half, slope, undisturbed, usual_growth, worst_lag

if TYPE_CHECKING:
    from collections import Counter

    from tests.chaos.bystander import Bystander
    from tests.chaos.ledger import Ledger
    from tests.e2e.lives import Life


def table(ledger: Ledger, lives: list[Life], machine: Bystander, seconds: float) -> str:
    """All of them."""
    counts = ledger.counts
    lines = [
        "",
        f"answers: {counts['answers']} in {seconds:.0f} s ({counts['whole']} whole, "
        f"{counts['cancelled']} cancelled, {sum(ledger.codes.values())} errors), "
        f"{counts['tokens']} tokens, all as one process says them",
        "  by client: " + _counted(counts, "answers of "),
        "  slowest: " + ", ".join(f"{who} {late:.1f} s" for who, late in ledger.slowest.items()),
        f"  errors: {dict(sorted(ledger.codes.items()))}",
        f"faults: {sum(ledger.faults.values())}: {dict(sorted(ledger.faults.items()))}",
        f"  not done: {dict(sorted(ledger.notes.items()))}",
        "healed in an answer: " + _spread(ledger.heals),
        "until somebody who was struck was seen ready again: " + _spread(ledger.returns),
        "until servable after a break (hosts' starts included): " + _spread(ledger.servable_after),
        f"lag of a process that does nothing: p99 of a minute at most "
        f"{1000 * max((late for _, late in machine.p99), default=0):.0f} ms, "
        f"worst {1000 * max((late for _, late in machine.worst), default=0):.0f} ms; "
        f"up to {max((load for _, load in machine.load), default=0):.1f} processes wanted a core",
        "",
        "role      lives  oldest s   RSS MiB   MiB/min (2nd half, LS / usual)   "
        "files   tasks   lag p99 / max ms",
    ]
    roles: dict[str, list[Life]] = {}
    for life in lives:
        if life.samples:
            roles.setdefault(life.name.partition("-")[0], []).append(life)
    for role, those in sorted(roles.items()):
        lines.append(_row(role, those))
    return "\n".join(lines)


def _row(role: str, lives: list[Life]) -> str:
    oldest = max(lives, key=lambda life: life.age())
    last = oldest.samples[-1][1]
    grown, usual = slope(second_half(oldest)), usual_growth(oldest)
    worst = max(
        (told.loop_lag_max_s for life in lives for _, told in undisturbed(life)), default=0
    )
    return (
        f"{role:9} {len(lives):5}  {oldest.age():8.0f}   {last.process_rss / MIB:7.1f}   "
        f"{_or_dash(grown):>10} / {_or_dash(usual):<17} "
        f"{max(life.samples[-1][1].open_files for life in lives):8}   "
        f"{max(life.samples[-1][1].tasks for life in lives):5}   "
        f"{1000 * max(map(worst_lag, lives)):7.0f} / {1000 * worst:.0f}"
    )


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def _spread(times: list[float]) -> str:
    if not times:
        return "-"
    return f"{len(times)}, p50 {statistics.median(times):.1f} s, at most {max(times):.1f} s"


def _counted(counts: Counter[str], prefix: str) -> str:
    found = {name.removeprefix(prefix): n for name, n in counts.items() if name.startswith(prefix)}
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items()))
