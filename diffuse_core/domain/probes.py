"""Probes under way: our own pings that wait for an Ack, and those we make for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.domain.agenda import Agenda

if TYPE_CHECKING:
    import random

    from diffuse_core.domain.identity import NodeId

PROBE_INTERVAL_S = 1.0
PROBE_TIMEOUT_S = 0.5
MAX_PROBES = 128
MAX_RELAYS = 256
RELAY_S = 2.0
RTT_WEIGHT_UP = 0.2
RTT_WEIGHT_DOWN = 0.5
"""Downwards faster: what makes a sample wrong makes it longer."""


@dataclass(slots=True)
class Probe:
    """One of our own. `helpers` is None until others were asked to help.

    `again` is the nonce of a second ping, sent at `again_at`: one lost message proves nothing.
    `met_at` is when a channel opened: until then the ping waited for it.
    """

    node: NodeId
    nonce: int
    sent: float
    indirect_at: float
    deadline: float
    helpers: tuple[NodeId, ...] | None = None
    refused: bool = False
    again: int | None = None
    again_at: float = 0.0
    met_at: float | None = None

    def answered_by(self, sender: NodeId) -> bool:
        """Whether an Ack of `sender` tells that the node lives."""
        return sender == self.node or sender in (self.helpers or ())

    def sent_at(self, nonce: int) -> float:
        """When the ping that bears `nonce` was sent; no earlier than it could be."""
        sent = self.again_at if nonce == self.again else self.sent
        return sent if self.met_at is None else max(sent, self.met_at)


class Probes:
    """At most one probe per node, MAX_PROBES in all."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._probes: dict[NodeId, Probe] = {}
        self._by_nonce: dict[int, Probe] = {}
        self._agenda: Agenda[NodeId] = Agenda()
        self.failed = 0
        """Since the start."""

    def __contains__(self, node: NodeId) -> bool:
        return node in self._probes

    def get(self, node: NodeId) -> Probe | None:
        """The probe of `node` that is under way."""
        return self._probes.get(node)

    def begin(self, node: NodeId, now: float, stretch: float) -> Probe | None:
        """A new probe of `node`; None when there are too many. `stretch` is for slow observers."""
        if len(self._probes) >= MAX_PROBES:
            return None
        probe = Probe(
            node=node,
            nonce=self._rng.getrandbits(32),
            sent=now,
            indirect_at=now + PROBE_TIMEOUT_S * stretch,
            deadline=now + PROBE_INTERVAL_S * stretch,
        )
        self._probes[node] = self._by_nonce[probe.nonce] = probe
        self._agenda.set(node, probe.indirect_at)
        return probe

    def drop(self, node: NodeId) -> None:
        """Nothing about `node` is asked any more."""
        probe = self._probes.pop(node, None)
        if probe is not None:
            self._by_nonce.pop(probe.nonce, None)
            if probe.again is not None:
                self._by_nonce.pop(probe.again, None)
            self._agenda.drop(node)

    def met(self, node: NodeId, now: float) -> None:
        """A channel with `node` opened: what was sent to it waited for that."""
        probe = self._probes.get(node)
        if probe is not None and probe.met_at is None:
            probe.met_at = now

    def helped(self, probe: Probe, helpers: tuple[NodeId, ...]) -> None:
        """These nodes were asked to help; what is left is to wait for the deadline."""
        probe.helpers = helpers
        self._agenda.set(probe.node, probe.deadline)

    def again(self, probe: Probe, now: float) -> int:
        """The nonce of a second ping."""
        probe.again, probe.again_at = self._rng.getrandbits(32), now
        self._by_nonce[probe.again] = probe
        return probe.again

    def answered(self, sender: NodeId, nonce: int) -> Probe | None:
        """The probe that an Ack of `sender` ends, which is none any more."""
        probe = self._by_nonce.get(nonce)
        if probe is None or not probe.answered_by(sender):
            return None
        self.drop(probe.node)
        return probe

    def next(self) -> float:
        """When the next one waited long enough, for help or in all."""
        return self._agenda.next()

    def take(self, now: float) -> list[Probe]:
        """Those that waited long enough: for help (`now` before their deadline), or in all."""
        due = [self._probes[node] for node in self._agenda.take(now)]
        self.failed += sum(now >= probe.deadline for probe in due)
        return due

    def shift(self, by: float) -> None:
        """Time in which we did not run does not count."""
        self._agenda.shift(by)
        for probe in self._probes.values():
            probe.sent += by
            if probe.met_at is not None:
                probe.met_at += by
            probe.again_at += by
            probe.indirect_at += by
            probe.deadline += by


@dataclass(frozen=True, slots=True)
class Relay:
    """A ping for `asker`, who knows it under `nonce`."""

    asker: NodeId
    nonce: int
    target: NodeId
    expires: float


class Relays:
    """Pings for others, MAX_RELAYS at most; all wait equally long, so the oldest is first."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._relays: dict[int, Relay] = {}

    def begin(self, asker: NodeId, nonce: int, target: NodeId, now: float) -> int:
        """A new one; the nonce to ping `target` with."""
        if len(self._relays) >= MAX_RELAYS:
            del self._relays[next(iter(self._relays))]
        own_nonce = self._rng.getrandbits(32)
        self._relays[own_nonce] = Relay(asker, nonce, target, now + RELAY_S)
        return own_nonce

    def answered(self, sender: NodeId, nonce: int) -> Relay | None:
        """The one that an Ack of `sender` ends, which is none any more."""
        relay = self._relays.get(nonce)
        if relay is None or relay.target != sender:
            return None
        return self._relays.pop(nonce)

    def next(self) -> float:
        """When the oldest one expires."""
        for relay in self._relays.values():
            return relay.expires
        return float("inf")

    def expire(self, now: float) -> None:
        """Forget those that nobody answered in time."""
        while self._relays and self.next() <= now:
            del self._relays[next(iter(self._relays))]


def smooth_rtt(old: float | None, sample: float) -> float:
    """A round trip in seconds that single samples move a little; `old` is None at first."""
    if old is None:
        return sample
    return old + (RTT_WEIGHT_DOWN if sample < old else RTT_WEIGHT_UP) * (sample - old)
