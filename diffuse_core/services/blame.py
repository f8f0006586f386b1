"""Whom a generation blames, and for what: so that neither one bad way nor one liar ends it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.services.losses import StageBlamed

MOST = 3
"""After so many losses of a node over one and the same Sentinel it is out as well."""


class Blame:
    """The standing of nodes within one generation.

    What we saw ourselves counts: a node is out when it broke the rules or was lost twice, but not
    when a Sentinel between us may be the only reason. What a Stage says of another makes both
    doubtful, unless we cannot reach the other either. Who is accused by two Stages is condemned:
    taken once all else is tried, and then without those who accuse.
    """

    def __init__(self) -> None:
        self.away: set[NodeId] = set()
        self.out: set[NodeId] = set()
        self.declined: set[NodeId] = set()
        self._doubtful: set[NodeId] = set()
        self._seen: Counter[NodeId] = Counter()
        self._ways: defaultdict[NodeId, set[NodeId | None]] = defaultdict(set)
        self._accused: defaultdict[NodeId, set[NodeId]] = defaultdict(set)
        self._charges: defaultdict[NodeId, Counter[NodeId]] = defaultdict(Counter)
        self._wrong: set[NodeId] = set()

    @property
    def pardonable(self) -> set[NodeId]:
        """Nodes that are not used any more, though nobody says that they did anything wrong."""
        return (self.away | self.out | self.condemned) - self._wrong

    def pardon(self, node: NodeId) -> None:
        """It is back, perhaps started anew, and nobody else can do what it did."""
        self.away.discard(node)
        self.out.discard(node)
        self._ways.pop(node, None)
        self._accused.pop(node, None)
        for counted in (self._seen, *self._charges.values()):
            counted.pop(node, None)

    @property
    def avoided(self) -> set[NodeId]:
        """Nodes that no Route may use."""
        return self.away | self.out | self.declined

    @property
    def condemned(self) -> set[NodeId]:
        """Nodes that two others accuse."""
        return {node for node, by in self._accused.items() if len(by) > 1}

    @property
    def accusers(self) -> set[NodeId]:
        """Nodes that accuse others which we reached."""
        return set().union(*self._accused.values())

    @property
    def named(self) -> set[NodeId]:
        """All that were blamed."""
        return self._doubtful | self.avoided | self.condemned

    def saw(self, problem: StageBlamed) -> None:
        """We lost a Stage ourselves."""
        node, way = problem.node, problem.relayed_through
        other_way = way is None or way not in self._ways[node]
        self._note(problem)
        self._seen[node] += 1
        self._ways[node].add(way)
        again = self._seen[node] > 1 and other_way
        wrong = problem.how == "silent" or problem.reason == "invalid"
        if wrong or again or self._seen[node] >= MOST:
            self.out.add(node)

    def accused(self, problem: StageBlamed, *, reached: bool) -> None:
        """A Stage says that another failed; we do reach that one, or do not."""
        self._note(problem)
        if not reached:
            self.away.add(problem.node)
        elif problem.accuser is not None:
            self._accused[problem.node].add(problem.accuser)
            self._charges[problem.accuser][problem.node] += 1

    def _note(self, problem: StageBlamed) -> None:
        self._doubtful.add(problem.node)
        if problem.reason == "invalid":
            self._wrong.add(problem.node)

    def to_replace(self, problem: StageBlamed) -> NodeId | None:
        """Who is to lose the place in the Route, after `saw` or `accused`; None: nobody.

        Where a way was lost whose both ends we reach, they may meet again: once. Then it is the
        accused one that goes, and who accuses another after that goes itself. What a Stage
        computed wrongly cannot be used, though.
        """
        node, accuser = problem.node, problem.accuser
        if node in self.avoided | self.condemned:
            return node
        if accuser is None:
            return None
        charges = self._charges[accuser]
        if len(charges) > 1:
            return accuser
        return node if problem.reason == "invalid" or charges[node] > 1 else None

    def to_avoid(self, suspects: Set[NodeId]) -> Iterator[set[NodeId]]:
        """Whom a Route is to avoid, the strictest first; `suspects` others have doubts about."""
        avoided, condemned, accusers = self.avoided, self.condemned, self.accusers
        yield avoided | condemned | accusers | self._doubtful | suspects
        if accusers:
            yield avoided | condemned | accusers
            yield avoided | condemned | set(self._accused)
        yield avoided | condemned
        if condemned:
            yield avoided | accusers
