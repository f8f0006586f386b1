"""Hearing: what the rumours of others mean to us.

Only members are listened to. A later sequence than ours announces a record to ask for. What is
believed of the sequence that we hold makes us probe, and what is said of ourselves is refuted;
older sequences mean nothing. Beliefs in a digest may be old, and of a network that was cut off:
they are looked into, but are no testimony.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diffuse_core.domain.identity import NodeId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diffuse_core.domain.messages import Rumour
    from diffuse_core.domain.rechecks import Rechecks
    from diffuse_core.domain.roster import Roster
    from diffuse_core.domain.wants import Wants


@dataclass(slots=True)
class Heard:
    """What is to be done about it.

    `ask` are the nodes whose records the sender is to be asked for. `accused` says that it thinks
    ill of the record that we stand by, `behind` that it does of an earlier one.
    """

    ask: list[NodeId] = field(default_factory=list)
    accused: bool = False
    behind: bool = False


class Hearing:
    """Takes rumours in, for the node `own`."""

    def __init__(self, own: NodeId, roster: Roster, wants: Wants, rechecks: Rechecks) -> None:
        self._own = own
        self._roster = roster
        self._wants = wants
        self._rechecks = rechecks

    def hear(
        self, sender: NodeId, rumours: Iterable[Rumour], now: float, *, digest: bool = False
    ) -> Heard:
        """What `sender` holds and believes."""
        heard = Heard()
        if not self._roster.is_member(sender):
            if not digest:
                self._hear_of_stranger(heard, sender, now)
            return heard
        for rumour in rumours:
            node = NodeId(rumour.node)
            held = self._roster.held(node)
            if rumour.sequence > held:
                self._hear_of_record(heard, sender, rumour, now)
            elif node == self._own:
                ill = rumour.liveness != "alive"
                heard.accused = heard.accused or (ill and rumour.sequence == held)
                heard.behind = heard.behind or (ill and rumour.sequence < held)
            elif rumour.sequence == held and node != sender:
                self._hear_belief(sender, rumour, now, digest=digest)
        return heard

    def _hear_of_stranger(self, heard: Heard, sender: NodeId, now: float) -> None:
        """Whoever pings us or announces to us knows us; we should know it, too."""
        unknown = self._roster.held(sender) < 0
        if unknown and self._wants.announced(sender, 0, sender, now):
            heard.ask.append(sender)

    def _hear_of_record(self, heard: Heard, sender: NodeId, rumour: Rumour, now: float) -> None:
        """A record that we lack; but who is gone for us and the sender stays so."""
        node = NodeId(rumour.node)
        gone = node != self._own and self._roster.detector.state(node) == "dead"
        if rumour.sequence > self._roster.latest or (gone and rumour.liveness == "dead"):
            return
        if self._wants.announced(node, rumour.sequence, sender, now):
            heard.ask.append(node)

    def _hear_belief(self, sender: NodeId, rumour: Rumour, now: float, *, digest: bool) -> None:
        node = NodeId(rumour.node)
        dead = self._roster.detector.state(node) == "dead"
        if rumour.liveness == "alive":
            if dead and digest:
                self._rechecks.hope(node)
        elif not digest:
            self._roster.detector.accuse(node, sender, now, dead=rumour.liveness == "dead")
        elif not dead:
            self._rechecks.doubt(node, now)
