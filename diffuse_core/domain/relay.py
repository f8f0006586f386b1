"""The book of a Sentinel that relays: who may be reached through it, and over which circuits.

A node reserves, over a link that it keeps open; others then ask for a circuit to it, by its id.
The Sentinel offers that to the node, which joins or does not. Ids of circuits are chance, and come
from outside. The book only says what may be; what copies the bytes is services.relay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.allowances import Allowances

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.relay_messages import RelayProblem


@dataclass(frozen=True)
class RelayLimits:
    """What a Sentinel gives to all nodes together, and to each.

    A reservation takes one connection and a circuit two, of the 512 that a port accepts: the
    first two defaults leave a quarter of them to nodes that want no relaying. A node has one
    circuit with each node that it talks to, so that a Host needs more of them than a Client.
    """

    reservations: int = 192
    circuits: int = 96
    """Together with those that were offered and not joined yet, as all counts of circuits."""
    circuits_per_target: int = 64
    circuits_per_source: int = 16
    offers_per_target: int = 32
    """Not joined yet: an honest node joins within a round trip or two, and so many at once."""
    kept_for_serving: float = 0.25
    """The share of the circuits that only nodes that serve may open."""
    opens: float = 32.0
    """Asked for by one node at once; each makes two nodes shake hands."""
    opens_per_s: float = 4.0
    reserved_s: int = 120
    """Nodes renew at a third of it, so that two renewals may be lost."""
    regain_s: float = 10.0
    """For a node whose link broke, to reserve over another one before its circuits end."""
    join_s: float = 5.0
    idle_s: float = 300.0
    """Without a byte. A link through a relay that is needed again is dialled again."""
    stalled_s: float = 15.0
    """How long one end may not read while the other one sends."""
    node_bytes_per_s: float = 16.0 * 2**20
    """Over all its circuits, both ways; a fast generation with a large model takes 1 MiB/s."""
    total_bytes_per_s: float = 32.0 * 2**20
    """About half of what one core copies, so that the Sentinel stays awake; a quarter of a line of
    1 Gbit/s, each way."""


class RelayFigures(msgspec.Struct, frozen=True):
    """How busy a relay is; bytes since it started."""

    reservations: int
    circuits: int
    bytes_relayed: int


@dataclass(frozen=True)
class Granted:
    """A reservation for so many seconds; `displaced` lost its own for it."""

    seconds: int
    displaced: NodeId | None = None


@dataclass
class _Reservation:
    serving: bool
    until: float
    linked: bool = True


@dataclass
class _Circuit:
    source: NodeId
    target: NodeId
    until: float
    joined: bool = False
    ending: bool = False


class RelayBook:
    """Reservations and circuits. Times are monotonic seconds.

    A circuit counts from `open` to `closed`, also while it is ending.
    """

    def __init__(self, limits: RelayLimits) -> None:
        self._limits = limits
        self._reservations: dict[NodeId, _Reservation] = {}
        self._circuits: dict[bytes, _Circuit] = {}
        self._opens = Allowances(limits.opens, limits.opens_per_s)

    def figures(self, bytes_relayed: int) -> RelayFigures:
        """The counts now."""
        return RelayFigures(len(self._reservations), len(self._circuits), bytes_relayed)

    # --- reservations -----------------------------------------------------------------

    def reserve(self, node: NodeId, now: float, *, serving: bool) -> Granted | RelayProblem:
        """Make or renew the reservation of `node`, or say why not.

        When all are taken, a node that serves takes the place of the last one to come that does
        not: who was there before a flood of made-up nodes is not thrown out by it.
        """
        displaced: NodeId | None = None
        known = self._reservations.get(node)
        until = now + self._limits.reserved_s
        if known is not None:
            known.serving, known.until, known.linked = serving, until, True
            return Granted(self._limits.reserved_s)
        if len(self._reservations) >= self._limits.reservations:
            displaced = self._least() if serving else None
            if displaced is None:
                return "busy"
            del self._reservations[displaced]
        self._reservations[node] = _Reservation(serving, until)
        return Granted(self._limits.reserved_s, displaced)

    def _least(self) -> NodeId | None:
        found = (node for node, kept in reversed(self._reservations.items()) if not kept.serving)
        return next(found, None)

    def release(self, node: NodeId) -> None:
        """`node` wants no further circuits; those it has go on."""
        self._reservations.pop(node, None)

    def link_ended(self, node: NodeId, now: float) -> None:
        """The link over which `node` reserved is gone: nothing can be offered to it."""
        known = self._reservations.get(node)
        if known is not None:
            known.linked = False
            known.until = min(known.until, now + self._limits.regain_s)

    # --- circuits ---------------------------------------------------------------------

    def open(
        self, circuit: bytes, source: NodeId, target: NodeId, now: float, *, serving: bool
    ) -> RelayProblem | None:
        """Enter a new circuit, to be offered to `target` now; or say why there is none.

        `serving` says whether `source` serves.
        """
        # First of all, lest it be free to ask for all nodes there are who is here.
        if not self._opens.spend(source, 1.0, now):
            return "limit"
        known = self._reservations.get(target)
        if known is None or not known.linked or now >= known.until or source == target:
            return "unknown"
        limits = self._limits
        mine = sum(one.source == source for one in self._circuits.values())
        there = [one for one in self._circuits.values() if one.target == target]
        offers = sum(not one.joined for one in there)
        if (
            mine >= limits.circuits_per_source
            or len(there) >= limits.circuits_per_target
            or offers >= limits.offers_per_target
        ):
            return "limit"
        kept = 0 if serving else math.ceil(limits.circuits * limits.kept_for_serving)
        if len(self._circuits) >= limits.circuits - kept:
            return "busy"
        self._circuits[circuit] = _Circuit(source, target, now + limits.join_s)
        return None

    def join(self, circuit: bytes, node: NodeId, now: float) -> bool:
        """Whether `node` may be the other half: it was offered to it, just now, and only once."""
        known = self._offered(circuit, node)
        if known is None or now >= known.until:
            return False
        known.joined = True
        known.until = now + self._limits.idle_s
        return True

    def decline(self, circuit: bytes, node: NodeId) -> bool:
        """`node` does not join; whether there was such an offer, which ends then."""
        known = self._offered(circuit, node)
        if known is None:
            return False
        known.ending = True
        return True

    def _offered(self, circuit: bytes, node: NodeId) -> _Circuit | None:
        known = self._circuits.get(circuit)
        if known is None or known.target != node or known.joined or known.ending:
            return None
        return known

    def moved(self, circuit: bytes, now: float) -> None:
        """Bytes passed through a circuit that was joined."""
        self._circuits[circuit].until = now + self._limits.idle_s

    def closed(self, circuit: bytes) -> None:
        """It ended, and nothing of it is left."""
        del self._circuits[circuit]

    # --- time -------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """When `tick` has something to do; infinity when it never will."""
        circuits = (one.until for one in self._circuits.values() if not one.ending)
        reservations = (one.until for one in self._reservations.values())
        return min((*circuits, *reservations), default=math.inf)

    def tick(self, now: float) -> tuple[bytes, ...]:
        """Drop reservations that ran out; the circuits that are to end, each told once.

        Those are the ones not joined in time, the idle ones, and the ones with a node whose
        reservation ran out.
        """
        lost = {node for node, kept in self._reservations.items() if now >= kept.until}
        for node in lost:
            del self._reservations[node]
        ending = [
            circuit
            for circuit, one in self._circuits.items()
            if not one.ending and (now >= one.until or one.target in lost)
        ]
        for circuit in ending:
            self._circuits[circuit].ending = True
        return tuple(ending)
