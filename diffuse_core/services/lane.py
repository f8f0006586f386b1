"""A lane: the steps of one Session at a scheduler, and what came of those that had their pass."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from diffuse_core.model_ports import LongPass, SessionId, StageResult, StageStep

    Outcome = StageResult | Exception | None

SHORT_ROWS = 8
"""A step of at most so many rows runs together with others; never a matter of load."""
SHORT_ALONE = 32
"""The same of one whose rows are to be as if each ran alone: a token and guesses behind it."""
AHEAD = 2
"""Outcomes that may wait for a slow next Stage before the Session's rows stop running."""
ALIKE = 2048
"""So many positions before a row make it cost twice as much, at the worst: of a large context a
pass takes many times what it took a moment before of small ones."""


def rows_of(step: StageStep) -> int:
    """How many positions a step computes."""
    if step.tokens is not None:
        return len(step.tokens)
    return step.hidden.shape[0] if step.hidden is not None else 0


def work_of(step: StageStep) -> int:
    """What its pass costs at most, in rows at the beginning of a text."""
    return rows_of(step) * (1 + step.position // ALIKE)


def is_short(step: StageStep) -> bool:
    """Whether it runs together with others."""
    return rows_of(step) <= (SHORT_ALONE if step.alone else SHORT_ROWS)


class Taker(Protocol):
    """Takes what a pass gave the moment it is there."""

    def __call__(self, result: StageResult, *, soon: bool) -> bool:
        """Whether that is all there is to do; `soon`: others get something of this pass as well.

        Must not wait. What it raises is raised to who waits for the outcome.
        """
        ...


class Lane:
    """One Session's steps, in order, and what came of those that had their pass."""

    def __init__(self, session: SessionId, stages: int = 1) -> None:
        self.session = session
        self.stages = stages
        """How many Stages its rows go through."""
        self.prompt = 0
        """Rows of the Session that are its prompt's; the others are of its answer."""
        self.steps: deque[StageStep] = deque()
        self.outcomes: asyncio.Queue[tuple[StageStep, Outcome]] = asyncio.Queue()
        self.taker: Taker | None = None
        """While somebody waits for the next outcome."""
        self.in_turn = False
        """It waits for its turn, or has it: until then it gets no other."""
        self.over = False
        """No step of it runs any more: it was closed, or one failed."""
        self.closed = False
        self.since = 0.0
        """When it was last lined up."""
        self.long: LongPass | None = None
        """Belongs to the executor thread."""

    @property
    def ready(self) -> bool:
        """A step may be given its turn."""
        if self.over or self.in_turn or not self.steps:
            return False
        return self.outcomes.qsize() < AHEAD
