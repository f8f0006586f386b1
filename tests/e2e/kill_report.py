"""What came of answers whose stages were struck."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.kill_plan import Kind, Strike

GOALS_S = {"kill": 2.0, "cut": 2.0, "stop": 5.0, "swallow": 5.0}
"""Of the 99th percentile, to which the time of the replay comes."""


@dataclass
class Outcome:
    """One answer, who was struck and by what. `stall_s` is None where it did not end well."""

    strike: Strike
    struck: tuple[tuple[str, Kind], ...]
    identical: bool
    stall_s: float | None
    healed: tuple[str, ...] = ()
    problem: str = ""
    wronged: tuple[str, ...] = ()
    """Hosts that were well, and were told to be lost, or lost their places."""

    @property
    def kind(self) -> str:
        """By which stalls are told apart; a second blow may have come too late."""
        return self.struck[0][1] if len(self.struck) == 1 else "two" if self.struck else "none"

    def __str__(self) -> str:
        told = "identical" if self.identical else "WRONG"
        if self.problem:
            told = f"FAILED: {self.problem}"
        stall = "" if self.stall_s is None else f", stalled {self.stall_s:.2f} s"
        who = ", ".join(f"{name} ({kind})" for name, kind in self.struck) or "nobody"
        lines = [f"{self.strike}: struck {who}: {told}{stall}"]
        lines += [f"       {text}" for text in self.healed]
        return "\n".join([*lines, *(f"       WRONGED {text}" for text in self.wronged)])


@dataclass
class KillReport:
    """All of them."""

    seed: int
    conditions: str
    outcomes: list[Outcome] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)

    @property
    def blows(self) -> int:
        return sum(len(one.struck) for one in self.outcomes)

    @property
    def problems(self) -> list[str]:
        """What went wrong; nothing if all did well."""
        bad = [str(one) for one in self.outcomes if not one.identical or one.wronged]
        return bad + self.left_over

    def stalls(self) -> dict[str, list[float]]:
        """Seconds by kind; of those in which somebody was struck."""
        found: dict[str, list[float]] = {}
        for one in self.outcomes:
            if one.struck and one.stall_s is not None:
                found.setdefault(one.kind, []).append(one.stall_s)
        return {kind: sorted(stalls) for kind, stalls in sorted(found.items())}

    def text(self) -> str:
        """For people."""
        same = sum(one.identical for one in self.outcomes)
        lines = [
            self.conditions,
            f"{self.blows} blows in {len(self.outcomes)} answers, of which {same} identical",
        ]
        for kind, stalls in self.stalls().items():
            goal = f" (goal {GOALS_S[kind]:g} and the replay)" if kind in GOALS_S else ""
            lines.append(
                f"  {kind:8} {len(stalls):4} stalls: p50 {statistics.median(stalls):.2f} s, "
                f"p99 {percentile(stalls, 99):.2f} s, most {stalls[-1]:.2f} s{goal}"
            )
        lines += [f"PROBLEM: {problem}" for problem in self.problems]
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """For programs."""
        return {
            "seed": self.seed,
            "conditions": self.conditions,
            "blows": self.blows,
            "answers": len(self.outcomes),
            "identical": sum(one.identical for one in self.outcomes),
            "stalls": {
                kind: {
                    "count": len(stalls),
                    "p50_s": statistics.median(stalls),
                    "p99_s": percentile(stalls, 99),
                    "max_s": stalls[-1],
                }
                for kind, stalls in self.stalls().items()
            },
            "problems": self.problems,
        }


def percentile(ordered: list[float], percent: float) -> float:
    """The smallest of them that so many percent do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
