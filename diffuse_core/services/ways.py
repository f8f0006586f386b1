"""Ways to nodes: in which order its addresses are dialled, and how soon after each other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.domain.bounded import forget_oldest
from diffuse_core.domain.relayed_address import is_relayed, parse_relayed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from diffuse_core.domain.identity import NodeId

LAN_STAGGER_S = 0.05
"""For direct addresses of a node that has relayed ones: no Sentinel could dial it there, so that
they are of use to who is on its LAN, and answer there in milliseconds."""
CIRCUIT_STAGGER_S = 0.6
"""A circuit takes several round trips with the Sentinel; two at once help little and cost it."""
BAD_WAY_STAGGER_S = 2.5
"""Before a way that led to silence: what it soon brings is no link to rely on."""
BAD_WAY_S = 300.0
"""How long it is remembered that a way led to silence."""
MAX_BAD_WAYS = 1024


class Ways:
    """Remembers for some minutes through which Sentinel which node did not answer.

    A Sentinel may carry the handshake of a circuit, and then nothing more. Such a way is not
    barred: it is taken where there is no other, and last.
    """

    def __init__(self) -> None:
        self._until: dict[tuple[NodeId, NodeId], float] = {}

    def add(self, node: NodeId, sentinel: NodeId) -> None:
        """`node` did not answer through `sentinel`."""
        self._until.pop((node, sentinel), None)
        self._until[node, sentinel] = asyncio.get_running_loop().time() + BAD_WAY_S
        forget_oldest(self._until, MAX_BAD_WAYS)

    def is_bad(self, node: NodeId, sentinel: NodeId | None) -> bool:
        """Whether it did not answer through this Sentinel lately."""
        if sentinel is None or (node, sentinel) not in self._until:
            return False
        return asyncio.get_running_loop().time() < self._until[node, sentinel]

    def leads_badly(self, node: NodeId, address: str) -> bool:
        """Whether this address of it leads over such a way."""
        relayed = parse_relayed(address) if self._until else None
        return relayed is not None and self.is_bad(node, relayed.sentinel)

    def ordered(self, node: NodeId, addresses: Iterable[str]) -> tuple[str, ...]:
        """Its addresses: direct ones first, those over bad ways last."""
        return tuple(
            sorted(addresses, key=lambda one: (is_relayed(one), self.leads_badly(node, one)))
        )

    def head_starts(self, node: NodeId, places: Sequence[str]) -> list[float] | None:
        """Seconds for each of its addresses, ordered so; None where all are direct."""
        if not places or not is_relayed(places[-1]):
            return None
        leads = [CIRCUIT_STAGGER_S if is_relayed(place) else LAN_STAGGER_S for place in places]
        bad = sum(self.leads_badly(node, place) for place in places)
        if 0 < bad < len(places):
            leads[-bad - 1] = BAD_WAY_STAGGER_S
        return leads
