"""Liveness: SWIM failure detection with Lifeguard's local health, over node ids only.

After "SWIM" (Das, Gupta, Motivala 2002) and "Lifeguard" (Dadgar, Phillips, Currey 2018), with the
constants of hashicorp/memberlist. What differs, and why:

- An accusation is passed on only by nodes whose own probe failed, so accusers are first-hand
  witnesses, and a forged rumour makes others probe instead of believe.
- A node that cannot be reached at all (a refused connection is evidence, silence is not) is probed
  through others at once, and is dead after a few such probes in a row: a killed process on a live
  machine is noticed in about two seconds, one that is only paused is not.
- When our own clock jumped (we were paused), pending deadlines move by as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import Ack, Ping, PingRequest
from diffuse_core.domain.suspicion import Suspicion

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from diffuse_core.domain.view import Liveness

PROBE_INTERVAL_S = 1.0
PROBE_TIMEOUT_S = 0.5
INDIRECT_PROBES = 3
STRIKES = 3
MAX_HEALTH = 8
MAX_PROBES = 64
MAX_RELAYS = 256
RELAY_S = 2.0
JUMP_S = 1.0
RTT_WEIGHT_UP = 0.2
RTT_WEIGHT_DOWN = 0.5
"""Downwards faster: the first sample contains the dialling."""

Step = tuple[NodeId, Ping | Ack | PingRequest]


@dataclass
class _Known:
    heard_at: float
    state: Liveness = "alive"
    rtt_s: float | None = None
    strikes: int = 0
    suspicion: Suspicion | None = None


@dataclass
class _Probe:
    nonce: int
    sent: float
    indirect_at: float
    deadline: float
    helpers: tuple[NodeId, ...] | None = None
    refused: bool = False


@dataclass(frozen=True)
class _Relay:
    asker: NodeId
    nonce: int
    target: NodeId
    expires: float


class FailureDetector:
    """Who is alive, suspect or dead, of the nodes it was told of.

    Feed it with what arrives and with `tick`; take what is to be sent from `drain` and what it
    found out from `drain_changes`.
    """

    def __init__(self, own: NodeId, rng: random.Random) -> None:
        self._own = own
        self._rng = rng
        self._known: dict[NodeId, _Known] = {}
        self._round: list[NodeId] = []
        self._probes: dict[NodeId, _Probe] = {}
        self._relays: dict[int, _Relay] = {}
        self._probe_at = math.inf
        self._health = 0
        self._steps: list[Step] = []
        self._changes: list[tuple[NodeId, Liveness]] = []
        self._testimony: list[NodeId] = []

    # --- what is known ---------------------------------------------------------------------

    @property
    def health(self) -> int:
        """0 when all is well, up to MAX_HEALTH when we ourselves seem slow or cut off."""
        return self._health

    def state(self, node: NodeId) -> Liveness:
        """What we think of `node`; unknown ones are dead."""
        known = self._known.get(node)
        return "dead" if known is None else known.state

    def stance(self, node: NodeId) -> Liveness:
        """What we say of `node`: suspect only when our own probe failed."""
        known = self._known.get(node)
        suspicion = known.suspicion if known else None
        if suspicion is not None and not suspicion.witnessed:
            return "alive"
        return self.state(node)

    def heard_at(self, node: NodeId) -> float:
        """When the last sign of life came, monotonic; -inf for unknown nodes."""
        known = self._known.get(node)
        return -math.inf if known is None else known.heard_at

    def rtt(self, node: NodeId) -> float | None:
        """Smoothed round trip of direct pings in seconds."""
        known = self._known.get(node)
        return None if known is None else known.rtt_s

    def live(self) -> list[NodeId]:
        """The nodes that are not dead, in the order they came."""
        return [node for node, known in self._known.items() if known.state != "dead"]

    # --- what happens ----------------------------------------------------------------------

    def alive(self, node: NodeId, now: float) -> None:
        """A newer record of `node` came: it is new, or it refuted what was said of it."""
        known = self._known.get(node)
        if known is None:
            self._known[node] = _Known(heard_at=now)
            self._round.insert(self._rng.randint(0, len(self._round)), node)
            self._probe_at = min(self._probe_at, now + PROBE_INTERVAL_S)
            return
        known.heard_at = now
        known.suspicion = None
        known.strikes = 0
        self._turn(node, known, "alive")

    def forget(self, node: NodeId) -> None:
        """Drop all about `node`; without a change being reported."""
        self._known.pop(node, None)
        self._probes.pop(node, None)

    def heard(self, node: NodeId, now: float) -> None:
        """Something came from `node` itself."""
        known = self._known.get(node)
        if known is None:
            return
        known.heard_at = now
        known.strikes = 0
        if known.state == "dead":
            self.probe(node, now)

    def probe(self, node: NodeId, now: float) -> None:
        """Ping `node` now, if it is known and no probe of it is under way."""
        if node in self._known and node not in self._probes:
            self._begin(node, now, direct=True)

    def accuse(self, node: NodeId, by: NodeId, now: float, *, dead: bool) -> None:
        """The member `by` says that its own probes of `node` failed (or even that it is dead)."""
        known = self._known.get(node)
        if known is None or known.state == "dead":
            return
        self._suspect(node, known, by, now)
        if dead and known.suspicion is not None:
            known.suspicion.claim_dead(by)
        self.probe(node, now)
        self._convict(node, known)

    def unreachable(self, node: NodeId, now: float) -> None:
        """Nothing can be delivered to `node`: the connection was refused, or broke."""
        known = self._known.get(node)
        if known is None or known.state == "dead":
            self._probes.pop(node, None)
            return
        if node not in self._probes and not self._begin(node, now, direct=False):
            return
        probe = self._probes[node]
        if not probe.refused:
            probe.refused = True
            probe.deadline = min(probe.deadline, now + PROBE_TIMEOUT_S)
            self._ask_helpers(node, probe)

    def relay(self, asker: NodeId, nonce: int, target: NodeId, now: float) -> None:
        """The member `asker` wants us to ping `target` for it."""
        if self.state(target) == "dead":
            return
        if len(self._relays) >= MAX_RELAYS:
            del self._relays[next(iter(self._relays))]
        own_nonce = self._rng.getrandbits(32)
        self._relays[own_nonce] = _Relay(asker, nonce, target, now + RELAY_S)
        self._steps.append((target, Ping(own_nonce)))

    def ack(self, sender: NodeId, nonce: int, now: float) -> None:
        """An Ack came; those that answer no question of ours change nothing."""
        relay = self._relays.get(nonce)
        if relay is not None and relay.target == sender:
            del self._relays[nonce]
            self._steps.append((relay.asker, Ack(relay.nonce)))
            return
        for node, probe in self._probes.items():
            if probe.nonce == nonce and (sender == node or sender in (probe.helpers or ())):
                del self._probes[node]
                self._passed(node, probe, now, direct=sender == node)
                return

    # --- time ------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """When `tick` has something to do, monotonic; inf when never."""
        times = [self._probe_at]
        times.extend(
            probe.deadline if probe.helpers is not None else probe.indirect_at
            for probe in self._probes.values()
        )
        live = len(self.live())
        times.extend(
            known.suspicion.deadline(live)
            for known in self._known.values()
            if known.suspicion is not None
        )
        times.extend(relay.expires for relay in self._relays.values())
        return min(times)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._forgive_jump(now)
        for nonce in [nonce for nonce, relay in self._relays.items() if now >= relay.expires]:
            del self._relays[nonce]
        for node, probe in list(self._probes.items()):
            if now >= probe.deadline:
                del self._probes[node]
                self._failed(node, probe, now)
            elif now >= probe.indirect_at and probe.helpers is None:
                self._ask_helpers(node, probe)
        self._expire(now)
        if now >= self._probe_at:
            self._probe_at = now + PROBE_INTERVAL_S * (1 + self._health)
            self._probe_next(now)

    def drain(self) -> list[Step]:
        """Take the messages to send."""
        steps, self._steps = self._steps, []
        return steps

    def drain_changes(self) -> list[tuple[NodeId, Liveness]]:
        """Take what was found out, in order."""
        changes, self._changes = self._changes, []
        return changes

    def drain_testimony(self) -> list[NodeId]:
        """Take the nodes of which others should hear what we ourselves found."""
        testimony, self._testimony = self._testimony, []
        return testimony

    # --- probes ----------------------------------------------------------------------------

    def _begin(self, node: NodeId, now: float, *, direct: bool) -> bool:
        if len(self._probes) >= MAX_PROBES:
            return False
        stretch = 1 + self._health
        self._probes[node] = probe = _Probe(
            nonce=self._rng.getrandbits(32),
            sent=now,
            indirect_at=now + PROBE_TIMEOUT_S * stretch,
            deadline=now + PROBE_INTERVAL_S * stretch,
        )
        if direct:
            self._steps.append((node, Ping(probe.nonce)))
        return True

    def _probe_next(self, now: float) -> None:
        """Probe in rounds, each in an order of its own: nobody waits longer than two rounds."""
        if not self._round:
            self._round = list(self._known)
            self._rng.shuffle(self._round)
        while self._round:
            node = self._round.pop()
            known = self._known.get(node)
            if known is not None and known.state != "dead" and node not in self._probes:
                self._begin(node, now, direct=True)
                return

    def _ask_helpers(self, node: NodeId, probe: _Probe) -> None:
        if probe.helpers is not None:
            return
        able = [one for one in self._healthy() if one != node]
        probe.helpers = tuple(self._rng.sample(able, min(INDIRECT_PROBES, len(able))))
        self._steps.extend((helper, PingRequest(probe.nonce, node)) for helper in probe.helpers)

    def _healthy(self) -> Iterable[NodeId]:
        return (node for node, known in self._known.items() if known.state == "alive")

    def _passed(self, node: NodeId, probe: _Probe, now: float, *, direct: bool) -> None:
        known = self._known[node]
        known.heard_at = now
        known.strikes = 0
        if direct:
            sample = max(0.0, now - probe.sent)
            old = sample if known.rtt_s is None else known.rtt_s
            weight = RTT_WEIGHT_DOWN if sample < old else RTT_WEIGHT_UP
            known.rtt_s = old + weight * (sample - old)
            self._ail(-1)
        suspicion = known.suspicion
        if suspicion is not None:
            suspicion.withdraw()
            if suspicion.groundless:
                known.suspicion = None
                self._turn(node, known, "alive")

    def _failed(self, node: NodeId, probe: _Probe, now: float) -> None:
        known = self._known[node]
        if known.state == "dead":
            return
        if not probe.refused:
            known.strikes = 0
            if known.state == "alive":
                self._ail(1)
            self._suspect(node, known, self._own, now)
            self._convict(node, known)
            return
        known.strikes += 1
        if known.strikes >= STRIKES:
            self._die(node, known)
            return
        self._suspect(node, known, self._own, now)
        self._begin(node, now, direct=True)

    # --- suspicion -------------------------------------------------------------------------

    def _suspect(self, node: NodeId, known: _Known, by: NodeId, now: float) -> None:
        if known.suspicion is None:
            known.suspicion = Suspicion(self._own, now)
        if known.suspicion.accuse(by) and by == self._own:
            self._testimony.append(node)
        self._turn(node, known, "suspect")

    def _convict(self, node: NodeId, known: _Known) -> None:
        """Dead at once when we failed to reach it and enough others found it dead."""
        if known.suspicion is not None and known.suspicion.convicted(len(self.live())):
            self._die(node, known)

    def _expire(self, now: float) -> None:
        live = len(self.live())
        for node, known in self._known.items():
            suspicion = known.suspicion
            if suspicion is None or now < suspicion.deadline(live):
                continue
            if known.heard_at >= suspicion.started:
                known.suspicion = None
                self._turn(node, known, "alive")
            else:
                self._die(node, known)

    def _die(self, node: NodeId, known: _Known) -> None:
        known.suspicion = None
        known.strikes = 0
        self._testimony.append(node)
        self._turn(node, known, "dead")

    def _turn(self, node: NodeId, known: _Known, state: Liveness) -> None:
        if known.state != state:
            known.state = state
            self._changes.append((node, state))

    # --- our own health --------------------------------------------------------------------

    def ail(self) -> None:
        """Others suspect us: we may be the slow one."""
        self._ail(1)

    def _ail(self, step: int) -> None:
        self._health = min(MAX_HEALTH, max(0, self._health + step))

    def _forgive_jump(self, now: float) -> None:
        """Time in which we did not run proves nothing about the others."""
        late = now - self.next_deadline()
        if late <= JUMP_S:
            return
        self._ail(1)
        self._probe_at += late
        for probe in self._probes.values():
            probe.sent += late
            probe.indirect_at += late
            probe.deadline += late
        for known in self._known.values():
            if known.suspicion is not None:
                known.suspicion.started += late
