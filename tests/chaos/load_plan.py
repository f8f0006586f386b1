"""What each client asks, one after the other: drawn from a seed before anything runs."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 96
"""Tokens of an answer."""
MOST_AT_ONCE = 3
"""Answers to one question (`--n`)."""

End = Literal["whole", "tokens", "seconds"]
"""Taken to its end; left after so many tokens, or after so many seconds."""
Blow = Literal["", "kill", "term", "int", "pause"]
"""What befalls the process of a client that is one: nothing, or a signal."""

DIGESTED = 500
"""So many asks of each client tell a plan from another."""


@dataclass(frozen=True)
class Ask:
    """So many answers to one question; `which` is a fraction of the list of questions."""

    which: float
    tokens: int
    end: End
    after: float
    """Tokens or seconds after which it is left, or struck."""
    count: int
    side_by_side: int
    """So many clients ask this at once."""
    blow: Blow
    then_s: float
    """How long the client does nothing afterwards."""
    speculate: bool
    streamed: bool


def draw_asks(seed: int, client: str) -> Iterator[Ask]:
    """Without an end."""
    rng = random.Random(f"asks {seed} {client}")
    while True:
        tokens = rng.choice((1, 8, 24, MOST, MOST))
        end: End = rng.choices(("whole", "tokens", "seconds"), (6, 2, 1))[0]
        after = float(rng.randint(0, tokens)) if end == "tokens" else rng.uniform(0.0, 0.6)
        burst = rng.random() < 0.1
        yield Ask(
            # Long prompts are the last of the list, and the rarest.
            which=rng.random() ** 1.7,
            tokens=tokens,
            end=end,
            after=after,
            count=rng.randint(2, MOST_AT_ONCE) if rng.random() < 0.15 else 1,
            side_by_side=rng.randint(3, 6) if burst else 1,
            blow=rng.choices(("", "kill", "term", "int", "pause"), (8, 2, 1, 1, 1))[0],
            then_s=rng.choice((0.0, 0.0, 0.05, 0.3, 1.0)),
            speculate=rng.random() < 0.8,
            streamed=rng.random() < 0.6,
        )


def first_asks(seed: int, clients: tuple[str, ...]) -> list[list[Ask]]:
    """What tells this plan from another."""
    return [list(itertools.islice(draw_asks(seed, client), DIGESTED)) for client in clients]
