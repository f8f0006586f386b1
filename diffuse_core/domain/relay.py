"""The book of a Sentinel that relays: who may be reached through it, and over which circuits.

A node reserves, over a link that it keeps open; others then ask for a circuit to it, by its id.
The Sentinel offers that to the node, which joins or does not. Ids of circuits are chance, and come
from outside. The book only says what may be; what copies the bytes is services.relay.

Ids cost nothing, and addresses do. So when room is short, it is shared by origin: by where the
channels come from, as domain.reachability.neighbourhood tells it. The nodes of one origin are a
crowd.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from diffuse_core.domain.allowances import Allowances
from diffuse_core.domain.view import RelayFigures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.relay_messages import RelayProblem

LARGE = 0.25
"""A crowd is large when it has more than this share of a limit, and more than one node's."""
HANDSHAKE_FRAMES = 4
"""Two nodes that only shook hands sent no more."""


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
    quiet_s: float = 30.0
    """The same when room is short, within one crowd. A stage may take as long for a prompt."""
    stalled_s: float = 15.0
    """How long one end may not read while the other one sends."""
    node_bytes_per_s: float = 16.0 * 2**20
    """Over all its circuits, both ways; a fast generation with a large model takes 1 MiB/s."""
    total_bytes_per_s: float = 32.0 * 2**20
    """About half of what one core copies, so that the Sentinel stays awake; a quarter of a line of
    1 Gbit/s, each way."""


@dataclass(frozen=True)
class Granted:
    """A reservation for so many seconds; `displaced` lost its own for it."""

    seconds: int
    displaced: NodeId | None = None


@dataclass(frozen=True)
class Opened:
    """A new circuit; `displaced` is out of the book, and is to end now."""

    displaced: bytes | None = None


@dataclass
class _Reservation:
    origin: str
    serving: bool
    until: float
    linked: bool = True


@dataclass
class _Circuit:
    origin: str
    source: NodeId
    target: NodeId
    opened: float
    moved: float
    until: float
    frames: int = 0
    joined: bool = False
    ending: bool = False


def crowd_to_yield(origins: Iterable[str], origin: str, limit: int) -> str | None:
    """The crowd in which one is to give way to a newcomer, now that `limit` is reached.

    That is the largest one when it is large and the newcomer's stays smaller; otherwise the
    newcomer's own. So any origin gets in, up to `LARGE`, whatever one hostile origin holds, and
    two crowds never take turns in displacing each other. Against somebody with many origins this
    is no help.

    Args:
        origins: of each that is there now.
        origin: of the newcomer.
        limit: how many there may be; a crowd is large by this.

    Returns:
        An origin; None when no crowd is large.
    """
    crowds = Counter(origins)
    largest, size = max(crowds.items(), key=itemgetter(1), default=("", 0))
    if size <= max(1, limit * LARGE):
        return None
    return largest if crowds[origin] + 1 < size else origin


class RelayBook:
    """Reservations and circuits. Times are monotonic seconds.

    A circuit counts from `open` to `closed`, also while it is ending, unless it was displaced.
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

    def reserve(
        self, node: NodeId, origin: str, now: float, *, serving: bool
    ) -> Granted | RelayProblem:
        """Make or renew the reservation of `node`, or say why not.

        When all are taken, the largest crowd makes room for smaller ones, and a node that serves
        takes the place of one that does not, unless it is of a large crowd and that one is not.
        The last to come goes first: who was there before a flood of made-up nodes is not thrown
        out by it.
        """
        displaced: NodeId | None = None
        known = self._reservations.get(node)
        until = now + self._limits.reserved_s
        if known is not None:
            known.origin, known.serving = origin, serving
            known.until, known.linked = until, True
            return Granted(self._limits.reserved_s)
        if len(self._reservations) >= self._limits.reservations:
            displaced = self._least(origin, serving)
            if displaced is None:
                return "busy"
            del self._reservations[displaced]
        self._reservations[node] = _Reservation(origin, serving, until)
        return Granted(self._limits.reserved_s, displaced)

    def _least(self, origin: str, serving: bool) -> NodeId | None:
        """Whose reservation ends for a node of `origin`."""
        there = self._reservations
        crowd = crowd_to_yield(
            (kept.origin for kept in there.values()), origin, self._limits.reservations
        )
        last_first = [node for node in reversed(there) if crowd in (None, there[node].origin)]
        # What nodes say of serving is their own word, so it saves nobody from making room.
        last_first.sort(key=lambda node: there[node].serving)
        found = next(iter(last_first), None)
        if found is None or crowd not in (None, origin):
            return found
        return found if serving and not there[found].serving else None

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
        self,
        circuit: bytes,
        source: NodeId,
        target: NodeId,
        now: float,
        *,
        origin: str,
        serving: bool,
    ) -> Opened | RelayProblem:
        """Enter a new circuit, to be offered to `target` now; or say why there is none.

        `origin` and `serving` are those of `source`. Where there is no room, one of a crowd that
        has more gives way, or one of the same crowd that was quiet for a while.
        """
        # First of all, lest it be free to ask for all nodes there are who is here.
        if not self._opens.spend(source, 1.0, now):
            return "limit"
        known = self._reservations.get(target)
        if known is None or not known.linked or now >= known.until or source == target:
            return "unknown"
        limits = self._limits
        mine = sum(one.source == source for one in self._circuits.values())
        if mine >= limits.circuits_per_source:
            return "limit"
        displaced: bytes | None = None
        full = self._full(target, serving)
        if full is not None:
            problem, among, limit = full
            displaced = self._gives_way(among, origin, limit, now)
            if displaced is None:
                return problem
            del self._circuits[displaced]
        until = now + limits.join_s
        self._circuits[circuit] = _Circuit(origin, source, target, now, now, until)
        return Opened(displaced)

    def _full(
        self, target: NodeId, serving: bool
    ) -> tuple[RelayProblem, Mapping[bytes, _Circuit], int] | None:
        """The narrowest limit that is reached, and the circuits that count for it.

        One that makes room there makes it everywhere.
        """
        limits = self._limits
        there = {name: one for name, one in self._circuits.items() if one.target == target}
        offers = {name: one for name, one in there.items() if not one.joined}
        kept = 0 if serving else math.ceil(limits.circuits * limits.kept_for_serving)
        if len(offers) >= limits.offers_per_target:
            return "limit", offers, limits.offers_per_target
        if len(there) >= limits.circuits_per_target:
            return "limit", there, limits.circuits_per_target
        if len(self._circuits) >= limits.circuits - kept:
            return "busy", self._circuits, limits.circuits - kept
        return None

    def _gives_way(
        self, among: Mapping[bytes, _Circuit], origin: str, limit: int, now: float
    ) -> bytes | None:
        """The idlest circuit that may end for a new one from `origin`."""
        crowd = crowd_to_yield((one.origin for one in among.values()), origin, limit)
        quiet = now - self._limits.quiet_s

        def may_end(one: _Circuit) -> bool:
            if one.frames <= HANDSHAKE_FRAMES and one.opened <= quiet:
                return True
            return one.origin == crowd and (crowd != origin or one.moved <= quiet)

        able = [name for name, one in among.items() if may_end(one)]
        return min(
            able, key=lambda name: (among[name].origin != crowd, among[name].moved), default=None
        )

    def join(self, circuit: bytes, node: NodeId, now: float) -> bool:
        """Whether `node` may be the other half: it was offered to it, just now, and only once."""
        known = self._offered(circuit, node)
        if known is None or now >= known.until:
            return False
        known.joined = True
        known.moved = now
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
        """A frame passed through a circuit that was joined."""
        known = self._circuits.get(circuit)
        if known is not None:
            known.frames += 1
            known.moved, known.until = now, now + self._limits.idle_s

    def closed(self, circuit: bytes) -> None:
        """It ended, and nothing of it is left."""
        self._circuits.pop(circuit, None)

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
