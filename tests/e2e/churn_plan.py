"""What happens to whom and when in a churn: drawn from a seed before anything runs."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["kill", "term", "pause", "query"]
WEIGHTS: dict[Kind, int] = {"kill": 3, "term": 2, "pause": 2, "query": 4}
PAUSE_S = 5.0
BETWEEN_S = (2.0, 6.0)
AWAY_S = (0.5, 10.0)
BACK_S = 12.0
"""What a restarted host is given to come back before it is struck again."""


@dataclass(frozen=True)
class Action:
    """At `at` seconds `kind` strikes `target`, for `lasts` seconds.

    A query asks `target`. Who was killed comes back at its `same_port` or at another one.
    """

    at: float
    kind: Kind
    target: str
    lasts: float
    same_port: bool
    salt: int

    def __str__(self) -> str:
        port = ", same port" if self.same_port and self.kind in ("kill", "term") else ""
        return f"{self.at:6.1f} s  {self.kind:5} {self.target} for {self.lasts:.1f} s{port}"


def draw_actions(
    seed: int, names: Sequence[str], steady: Sequence[str], seconds: float
) -> list[Action]:
    """The actions of a churn of `seconds`, in order; the same for the same arguments.

    Those of `steady` are never ended, only paused. At most a third is away at once.
    """
    rng = random.Random(seed)
    busy_until = dict.fromkeys(names, 0.0)
    actions: list[Action] = []
    at = 0.0
    while (at := at + rng.uniform(*BETWEEN_S)) < seconds:
        kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        salt, same_port, lasts = rng.randrange(40), rng.random() < 0.5, rng.uniform(*AWAY_S)
        free = [name for name in names if busy_until[name] <= at]
        if kind in ("kill", "term"):
            free = [name for name in free if name not in steady]
        away = sum(until > at for until in busy_until.values())
        if not free or (kind != "query" and away >= len(names) // 3):
            kind, free = "query", list(steady)
        target = rng.choice(free)
        if kind == "query":
            lasts = 0.0
        else:
            lasts = PAUSE_S if kind == "pause" else lasts
            busy_until[target] = at + lasts + BACK_S
        actions.append(Action(at, kind, target, lasts, same_port, salt))
    return actions
