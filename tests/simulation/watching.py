"""Watching: who held whom for dead, and when, from the events that nodes report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diffuse_core.domain.identity import short_text

if TYPE_CHECKING:
    from simulated_network import SimulatedNetwork
    from simulated_node import SimulatedNode


@dataclass(frozen=True, slots=True)
class Belief:
    """At `at`, the node `observer` turned to think that of the node `about`."""

    at: float
    observer: int
    about: int
    what: str
    true: bool
    """Whether the node ran (paused or not) when it was held for dead."""


@dataclass
class Watch:
    """Notes every death and every return; counts suspicions."""

    net: SimulatedNetwork
    deaths: list[Belief] = field(default_factory=list)
    returns: list[Belief] = field(default_factory=list)
    suspicions: int = 0
    held_dead: set[tuple[int, int]] = field(default_factory=set)
    """Who holds whom for dead at present."""

    def __post_init__(self) -> None:
        self._numbers = {short_text(node.id): node.number for node in self.net.nodes}
        self.net.on_event = self._note

    def _note(self, node: SimulatedNode, text: str) -> None:
        name, _, what = text.partition(" ")
        if what == "is suspect":
            self.suspicions += 1
        elif what in ("died", "is back") and name in self._numbers:
            about = self._numbers[name]
            dead = what == "died"
            true = dead != self.net.nodes[about].running
            belief = Belief(self.net.now, node.number, about, what, true)
            if dead:
                self.deaths.append(belief)
                self.held_dead.add((node.number, about))
            else:
                self.returns.append(belief)
                self.held_dead.discard((node.number, about))

    @property
    def false_deaths(self) -> list[Belief]:
        """A node that runs was held for dead by one that runs."""
        return [one for one in self.deaths if not one.true]

    def seconds_until_dead(self, about: int, since: float) -> list[float]:
        """Of each observer that found out, how long after `since` it did; sorted."""
        first: dict[int, float] = {}
        for one in self.deaths:
            if one.about == about and one.at >= since:
                first.setdefault(one.observer, one.at - since)
        return sorted(first.values())


def percentile(values: list[float], share: float) -> float:
    """The smallest value that `share` of all do not pass; inf when there are none."""
    if not values:
        return float("inf")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, int(share * len(ordered) + 0.999999) - 1))]
