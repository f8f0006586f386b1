"""What happened in a run: every answer, what was wrong, and the story that led there."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

CANARY = "zq7canary"
"""Begins each prompt. No word of the tiny model: it takes that for its first one."""
DOCUMENTED = frozenset({3, 4, 5, 6, 7})
"""What a request may end with while faults happen; the error tree tells them."""
LAST_LINES = 12
AFTER_A_FAULT_S = 45.0
"""So long a fault may still be felt: a host that comes back loads, a dead one is found out."""


@dataclass(frozen=True)
class Answered:
    """One answer as its client got it. `right` is the whole right answer.

    `code` is the exit code of an error that ended it; `left` tells that the client did not want
    the rest.
    """

    client: str
    tokens: tuple[int, ...]
    right: tuple[int, ...]
    began: float
    ended: float
    code: int = 0
    left: bool = False
    error: str = ""


def is_prefix(tokens: Sequence[int], right: Sequence[int]) -> bool:
    """Whether an answer that broke off says what the whole one begins with."""
    return tuple(tokens) == tuple(right[: len(tokens)])


def fault_of(answer: Answered) -> str:
    """What is wrong with an answer; empty when nothing is."""
    if not is_prefix(answer.tokens, answer.right):
        at = next(
            (n for n, pair in enumerate(zip(answer.tokens, answer.right, strict=False))
             if pair[0] != pair[1]),
            len(answer.right),
        )  # fmt: skip
        return f"wrong token at {at} of {len(answer.right)}: {answer.tokens[at : at + 3]}"
    if answer.code:
        if answer.code not in DOCUMENTED:
            return f"ended with the undocumented exit code {answer.code}: {answer.error}"
        return ""
    if not answer.left and answer.tokens != answer.right:
        return f"ended well after {len(answer.tokens)} of {len(answer.right)} tokens"
    return ""


@dataclass
class Ledger:
    """Counts and keeps; `violations` make a run fail."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    heals: list[float] = field(default_factory=list)
    servable_after: list[float] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    slowest: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    active: dict[str, float] = field(default_factory=dict)
    """Faults that go on, and since when."""
    last_fault: float = 0.0
    _story: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))

    def say(self, text: object) -> None:
        """A line of the story, at once."""
        line = f"{time.strftime('%H:%M:%S')} {text}"
        self._story.append(line)
        click.echo(line)
        sys.stdout.flush()

    def violation(self, text: str) -> None:
        """Something that must not be; told with what happened before."""
        before = list(self._story)
        self.violations.append(text)
        self.say(f"VIOLATION: {text}")
        click.echo(f"    seed {self.seed}; active: {', '.join(self.active) or 'nothing'}; before:")
        for line in before:
            click.echo(f"    | {line}")
        sys.stdout.flush()

    def begin(self, what: str) -> None:
        """A fault begins."""
        self.active[what] = time.time()

    def end(self, what: str) -> None:
        """It is over."""
        self.active.pop(what, None)
        self.last_fault = time.time()

    def disturbed(self, since: float) -> bool:
        """Whether a fault may have been felt by what began at `since` and ends now."""
        return bool(self.active) or self.last_fault + AFTER_A_FAULT_S > since

    def note(self, answer: Answered) -> None:
        """One answer came to its end."""
        self.counts["answers"] += not answer.code
        self.counts[f"answers of {answer.client}"] += not answer.code
        self.counts["tokens"] += len(answer.tokens)
        self.counts["cancelled"] += answer.left
        self.counts["whole"] += not answer.left and not answer.code
        seconds = answer.ended - answer.began
        self.slowest[answer.client] = max(self.slowest.get(answer.client, 0.0), seconds)
        if answer.code:
            self.codes[f"{answer.client}: exit {answer.code}"] += 1
        if fault := fault_of(answer):
            self.violation(f"{answer.client}: {fault}")
        elif answer.code not in (0, 6) and not self.disturbed(answer.began):
            self.violation(
                f"{answer.client}: exit {answer.code} though nothing was wrong: {answer.error}"
            )

    def heard(self, clients: Sequence[str]) -> bool:
        """Whether each of these got answers."""
        return all(self.counts[f"answers of {client}"] for client in clients)
