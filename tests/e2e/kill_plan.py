"""What strikes which stages of an answer, and when: drawn from a seed before anything runs."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["kill", "stop", "cut", "swallow"]
"""SIGKILL; SIGSTOP; all its links end and are refused; all its links fall silent."""
Moment = Literal["prefill", "decode"]

WEIGHTS: dict[Kind, int] = {"kill": 4, "stop": 2, "cut": 2, "swallow": 2}
PREFILL = 0.3
TWO = 0.15
"""How often a second stage is struck, at once or while the first one is being replaced."""
AT_ONCE = 0.5
LATER_S = 1.0
LENGTHS = (20, 90, 300, 700)
"""Of prompts, in tokens: up to three pieces."""


@dataclass(frozen=True)
class Blow:
    """`kind` strikes the stage at this fraction of the route, so long after the blow before."""

    kind: Kind
    stage: float
    after_s: float = 0.0


@dataclass(frozen=True)
class Strike:
    """What happens to one answer.

    `at` is a fraction: of the usual time to the first token, or of the tokens of the answer.
    """

    number: int
    length: int
    sampled: bool
    moment: Moment
    at: float
    blows: tuple[Blow, ...]

    def __str__(self) -> str:
        what = " and ".join(
            f"{blow.kind} at {blow.stage:.2f}" + (f" {blow.after_s:.2f} s later" * (number > 0))
            for number, blow in enumerate(self.blows)
        )
        how = "sampled" if self.sampled else "greedy"
        return f"{self.number:4} {what}, {self.moment} {self.at:.2f}, {self.length} {how}"


def draw_strikes(seed: int, kills: int, lengths: Sequence[int] = LENGTHS) -> list[Strike]:
    """So many blows in all, over as many answers as it takes; the same for the same arguments."""
    rng = random.Random(seed)
    strikes: list[Strike] = []
    left = kills
    while left:
        blows = [_blow(rng, 0.0)]
        if rng.random() < TWO and left > 1:
            later = 0.0 if rng.random() < AT_ONCE else rng.uniform(0, LATER_S)
            blows.append(_blow(rng, later))
        moment: Moment = "prefill" if rng.random() < PREFILL else "decode"
        strikes.append(
            Strike(
                number=len(strikes) + 1,
                length=rng.choice(lengths),
                sampled=rng.random() < 0.5,
                moment=moment,
                at=rng.random(),
                blows=tuple(blows),
            )
        )
        left -= len(blows)
    return strikes


def _blow(rng: random.Random, after_s: float) -> Blow:
    kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    return Blow(kind, rng.random(), after_s)
