"""Wants: records that others announced and we lack, and who of them was asked for each.

A record is asked for at one node at a time, so that it usually arrives once; when no answer comes
in time, at the next one that announced it, for a few seconds in all. Bounded in all, and in what
one node can occupy: less and less when what it announces does not come, and no more than its fair
share when others want room.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diffuse_core.domain.bounded import forget_oldest

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

PATIENCE_S = (0.15, 0.3, 1.0)
"""How long an answer may take: at least, before any came, and at most."""
PATIENCE = 3.0
"""Times what answers took on average; a late one does no harm, it is just one too many."""
SMOOTHING = 0.1
MAX_WANTED = 2048
MAX_ASKED_OF_ONE = 512
"""Of who answers; it halves each time that something does not come, and grows by each answer."""
MIN_ASKED_OF_ONE = 8
MAX_ANNOUNCERS = 4
LIFETIME_S = 5.0
"""After which a record is given up, whoever else announced it."""
MAX_DOUBTED = 4096


@dataclass(slots=True)
class _Wanted:
    sequence: int
    asked: NodeId
    at: float
    until: float
    end: float
    answered: bool = False
    others: deque[NodeId] = field(default_factory=lambda: deque(maxlen=MAX_ANNOUNCERS))


class Wants:
    """What is missing, by node."""

    def __init__(self) -> None:
        self._wanted: dict[NodeId, _Wanted] = {}
        self._asked: dict[NodeId, dict[NodeId, None]] = {}
        self._trust: dict[NodeId, int] = {}
        self._usual = PATIENCE_S[1] / PATIENCE

    def __len__(self) -> int:
        return len(self._wanted)

    def announced(self, node: NodeId, sequence: int, by: NodeId, now: float) -> bool:
        """`by` holds a record of `node` that is newer than ours; whether to ask it for it now."""
        wanted = self._wanted.get(node)
        if wanted is not None:
            if by != wanted.asked and by not in wanted.others:
                wanted.others.append(by)
            wanted.sequence = max(wanted.sequence, sequence)
            return False
        if not self._has_room(by):
            return False
        self._ask(node, _Wanted(sequence, by, now, now + self.patience, now + LIFETIME_S))
        return True

    @property
    def patience(self) -> float:
        """Seconds after which somebody else is asked."""
        return min(PATIENCE_S[2], max(PATIENCE_S[0], PATIENCE * self._usual))

    def got(self, node: NodeId, sequence: int, sender: NodeId, now: float) -> None:
        """`sender` sent a record of `node`; a later one that was announced is still wanted."""
        wanted = self._wanted.get(node)
        if wanted is None:
            return
        if wanted.asked == sender:
            self._usual += SMOOTHING * (now - wanted.at - self._usual)
            self._trust_more(sender)
            wanted.answered = True
        if sequence >= wanted.sequence:
            self._drop(node)

    def next_deadline(self) -> float:
        """When an answer is overdue, monotonic; inf when nothing is wanted."""
        return next(iter(self._wanted.values())).until if self._wanted else math.inf

    def overdue(self, now: float) -> dict[NodeId, list[NodeId]]:
        """Whom to ask now for what, instead of those that did not answer; by whom to ask."""
        asks: dict[NodeId, list[NodeId]] = {}
        silent: dict[NodeId, None] = {}
        while self._wanted:
            node, wanted = next(iter(self._wanted.items()))
            if now < wanted.until:
                break
            self._drop(node)
            if not wanted.answered:
                # Who sent what it has is not to blame for a later one that others made up.
                silent[wanted.asked] = None
            if wanted.others and now < wanted.end:
                wanted.asked, wanted.answered = wanted.others.popleft(), False
                wanted.at, wanted.until = now, now + self.patience
                self._ask(node, wanted)
                asks.setdefault(wanted.asked, []).append(node)
        for node in silent:
            self._trust_less(node)
        return asks

    def _has_room(self, by: NodeId) -> bool:
        """Whether `by` may be asked for one more; in a full table somebody makes room for it.

        Who has less than a fair share takes the place of the latest of who has most.
        """
        count = len(self._asked.get(by, ()))
        if count >= min(MAX_ASKED_OF_ONE, self._trust.get(by, MAX_ASKED_OF_ONE)):
            return False
        if len(self._wanted) < MAX_WANTED:
            return True
        if count + 1 >= MAX_WANTED // len(self._asked):
            return False
        most = max(self._asked.values(), key=len)
        self._drop(next(reversed(most)))
        return True

    def _trust_more(self, node: NodeId) -> None:
        trust = self._trust.get(node, MAX_ASKED_OF_ONE) + 1
        if trust < MAX_ASKED_OF_ONE:
            self._trust[node] = trust
        else:
            self._trust.pop(node, None)

    def _trust_less(self, node: NodeId) -> None:
        trust = self._trust.pop(node, MAX_ASKED_OF_ONE)
        self._trust[node] = max(MIN_ASKED_OF_ONE, trust // 2)
        forget_oldest(self._trust, MAX_DOUBTED)

    def _ask(self, node: NodeId, wanted: _Wanted) -> None:
        """Patience changes slowly, so the dict is nearly in order of the deadlines."""
        self._wanted[node] = wanted
        self._asked.setdefault(wanted.asked, {})[node] = None

    def _drop(self, node: NodeId) -> None:
        wanted = self._wanted.pop(node)
        asked = self._asked[wanted.asked]
        del asked[node]
        if not asked:
            del self._asked[wanted.asked]
