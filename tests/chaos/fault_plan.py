"""What happens to whom and when: drawn from a seed before anything runs.

Faults come from a shuffled deck, so that each kind has its turn. Whoever is drawn may be passed
over when it comes to it, for the next one of its kind, where the network could not spare it.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Kind = Literal[
    "kill", "term", "pause", "cut", "swallow", "slow", "lossy",
    "clock", "disk", "rot", "corrupt", "memory", "files", "join", "break", "rest",
]  # fmt: skip
"""SIGKILL; SIGTERM; SIGSTOP; links end, fall silent, get slow, lose; started with a wrong time of
day; with a disk that fills up; with a model whose file is damaged while it runs. A host comes:
with a damaged model, with little memory, with few files, or well. All holders of a range are
killed. Nothing is asked or struck, and what is left over is looked for."""

DECK: dict[Kind, int] = {
    "kill": 5, "term": 3, "pause": 3, "cut": 2, "swallow": 2, "slow": 2, "lossy": 1,
    "clock": 2, "disk": 1, "rot": 1, "corrupt": 1, "memory": 1, "files": 1, "join": 1, "break": 1,
}  # fmt: skip
ALONE: tuple[Kind, ...] = ("break", "rest")
"""They begin when all others are over."""
NEWCOMERS: tuple[Kind, ...] = ("corrupt", "memory", "files", "join")
"""They strike nobody who is there."""
HOSTS_ONLY: tuple[Kind, ...] = ("disk", "rot")
LINKS: tuple[Kind, ...] = ("cut", "swallow", "slow", "lossy")
ENDING: tuple[Kind, ...] = ("kill", "term", "clock", "disk", "rot")
"""They end the process that they strike, and start it again."""
SHORT: tuple[Kind, ...] = ("kill", "term", "pause", "cut", "swallow", "slow")
"""Those of which many fit into half a minute: no process is started twice."""

FIRST_S = 2.0
BETWEEN_S = (2.0, 7.0)
LASTS_S = (1.0, 12.0)
PAUSES_S = (0.5, 8.0)
BACK_S = 15.0
"""What somebody is given to come back before being struck again."""
REST_EVERY_S = 120.0
REST_S = 20.0


@dataclass(frozen=True)
class Cast:
    """Who is on the network, by name."""

    hosts: tuple[str, ...]
    sentinels: tuple[str, ...]
    others: tuple[str, ...]
    """Nodes without a slice, and HTTP servers: their callers come again."""
    linked: frozenset[str]
    """Those whose links pass the proxy."""
    steady: frozenset[str]
    """Those who are never ended: what grows without an end is seen in them."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.hosts, *self.sentinels, *self.others)


@dataclass(frozen=True)
class Fault:
    """At `at` seconds `kind` befalls the first of `targets` that can be spared, for `lasts` s."""

    at: float
    kind: Kind
    targets: tuple[str, ...]
    lasts: float
    salt: int

    def __str__(self) -> str:
        whom = f" {self.targets[0]}" if self.targets else ""
        return f"{self.at:6.1f} s  {self.kind}{whom} for {self.lasts:.1f} s"


def draw_faults(
    seed: int, cast: Cast, seconds: float, kinds: Sequence[Kind] = tuple(DECK)
) -> tuple[Fault, ...]:
    """The faults of so many seconds, in order; the same for the same arguments."""
    rng = random.Random(f"faults {seed}")
    free_at = dict.fromkeys(cast.names, 0.0)
    deck = _deck(rng, kinds)
    faults: list[Fault] = []
    at, rested = FIRST_S, 0.0
    while at < seconds:
        kind: Kind = "rest" if at - rested > REST_EVERY_S else next(deck)
        if kind in ALONE:
            at = max(at, *free_at.values()) if faults else at
        fault = _draw(rng, cast, kind, at, free_at)
        if fault is not None and at + fault.lasts < seconds:
            faults.append(fault)
            for name in cast.names if kind in ALONE else fault.targets[:1]:
                free_at[name] = at + fault.lasts + BACK_S
        if kind == "rest":
            rested = at = at + REST_S
        elif kind == "break" and fault is not None:
            at += fault.lasts + BACK_S
        at += rng.uniform(*BETWEEN_S)
    return tuple(faults)


def _deck(rng: random.Random, kinds: Sequence[Kind]) -> Iterator[Kind]:
    while True:
        cards = [kind for kind in kinds for _ in range(DECK[kind])]
        rng.shuffle(cards)
        yield from cards


def _draw(
    rng: random.Random, cast: Cast, kind: Kind, at: float, free_at: dict[str, float]
) -> Fault | None:
    """A fault, unless all whom it could strike are struck already."""
    lasts = rng.uniform(*(PAUSES_S if kind == "pause" else LASTS_S))
    salt = rng.randrange(2**31)
    if kind == "rest":
        return Fault(at, kind, (), REST_S, salt)
    if kind in NEWCOMERS or kind == "break":
        return Fault(at, kind, (), lasts, salt)
    free = [name for name in _whom(cast, kind) if free_at[name] <= at]
    rng.shuffle(free)
    if any(name in cast.sentinels and free_at[name] > at for name in cast.sentinels):
        # One of them is always well: who comes anew could not come otherwise.
        free = [name for name in free if name not in cast.sentinels]
    away = sum(free_at[name] > at for name in cast.hosts)
    if away >= max(1, len(cast.hosts) // 3):
        free = [name for name in free if name not in cast.hosts]
    return Fault(at, kind, tuple(free), lasts, salt) if free else None


def _whom(cast: Cast, kind: Kind) -> tuple[str, ...]:
    if kind in LINKS:
        return tuple(name for name in cast.names if name in cast.linked)
    names = cast.names
    if kind in HOSTS_ONLY:
        names = cast.hosts
    elif kind == "clock":
        names = (*cast.hosts, *cast.sentinels)
    if kind in ENDING:
        names = tuple(name for name in names if name not in cast.steady)
    return names


def digest(*parts: object) -> str:
    """What two runs have in common that do the same."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
