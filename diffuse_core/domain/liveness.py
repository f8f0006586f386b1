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

from diffuse_core.domain.agenda import Agenda
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import Ack, Ping, PingRequest
from diffuse_core.domain.pool import Pool
from diffuse_core.domain.probes import (
    PROBE_INTERVAL_S,
    PROBE_TIMEOUT_S,
    Probe,
    Probes,
    Relays,
)
from diffuse_core.domain.suspicion import Suspicion

if TYPE_CHECKING:
    import random

    from diffuse_core.domain.view import Liveness

INDIRECT_PROBES = 3
STRIKES = 3
MAX_HEALTH = 8
HELPER_DRAWS = 4 * INDIRECT_PROBES
"""Enough that, unless most nodes are suspect, as many helpers as wanted are among them."""
JUMP_S = 1.0
RTT_WEIGHT_UP = 0.2
RTT_WEIGHT_DOWN = 0.5
"""Downwards faster: the first sample contains the dialling."""

Step = tuple[NodeId, Ping | Ack | PingRequest]


@dataclass(slots=True)
class _Known:
    heard_at: float
    state: Liveness = "alive"
    rtt_s: float | None = None
    strikes: int = 0
    suspicion: Suspicion | None = None


class FailureDetector:
    """Who is alive, suspect or dead, of the nodes it was told of.

    Feed it with what arrives and with `tick`; take what is to be sent from `drain` and what it
    found out from `drain_changes`.
    """

    def __init__(self, own: NodeId, rng: random.Random) -> None:
        self._own = own
        self._rng = rng
        self._known: dict[NodeId, _Known] = {}
        self._live = Pool()
        self._round: list[NodeId] = []
        self._probes = Probes(rng)
        self._relays = Relays(rng)
        self._suspects: Agenda[NodeId] = Agenda()
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
        """The nodes that are not dead, in no order to rely on; takes time for each of them."""
        return self._live.all()

    def live_count(self) -> int:
        """How many nodes are not dead, ourselves not counted."""
        return len(self._live)

    def sample_live(self, count: int) -> list[NodeId]:
        """Up to `count` different nodes that are not dead, drawn at random."""
        return self._live.sample(self._rng, count)

    # --- what happens ----------------------------------------------------------------------

    def alive(self, node: NodeId, now: float) -> None:
        """A newer record of `node` came: it is new, or it refuted what was said of it."""
        known = self._known.get(node)
        if known is None:
            self._known[node] = _Known(heard_at=now)
            self._live.add(node)
            self._round.insert(self._rng.randint(0, len(self._round)), node)
            self._probe_at = min(self._probe_at, now + PROBE_INTERVAL_S)
            return
        known.heard_at = now
        known.strikes = 0
        self._clear(node, known)

    def forget(self, node: NodeId) -> None:
        """Drop all about `node`; without a change being reported."""
        self._known.pop(node, None)
        self._live.discard(node)
        self._probes.drop(node)
        self._suspects.drop(node)

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
            self._probes.drop(node)
            return
        probe = self._probes.get(node) or self._begin(node, now, direct=False)
        if probe is not None and not probe.refused:
            probe.refused = True
            probe.deadline = min(probe.deadline, now + PROBE_TIMEOUT_S)
            self._ask_helpers(probe)

    def relay(self, asker: NodeId, nonce: int, target: NodeId, now: float) -> None:
        """The member `asker` wants us to ping `target` for it."""
        if self.state(target) == "dead":
            return
        self._steps.append((target, Ping(self._relays.begin(asker, nonce, target, now))))

    def ack(self, sender: NodeId, nonce: int, now: float) -> None:
        """An Ack came; those that answer no question of ours change nothing."""
        relay = self._relays.answered(sender, nonce)
        if relay is not None:
            self._steps.append((relay.asker, Ack(relay.nonce)))
            return
        probe = self._probes.answered(sender, nonce)
        if probe is not None:
            self._passed(probe, now, direct=sender == probe.node)

    # --- time ------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """When `tick` has something to do, monotonic; inf when never."""
        return min(self._probe_at, self._probes.next(), self._suspects.next(), self._relays.next())

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._forgive_jump(now)
        self._relays.expire(now)
        for probe in self._probes.take(now):
            if now >= probe.deadline:
                self._probes.drop(probe.node)
                self._failed(probe, now)
            else:
                self._ask_helpers(probe)
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

    def _begin(self, node: NodeId, now: float, *, direct: bool) -> Probe | None:
        probe = self._probes.begin(node, now, 1 + self._health)
        if probe is not None and direct:
            self._steps.append((node, Ping(probe.nonce)))
        return probe

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

    def _ask_helpers(self, probe: Probe) -> None:
        if probe.helpers is not None:
            return
        drawn = self.sample_live(HELPER_DRAWS)
        able = [one for one in drawn if one != probe.node and self._known[one].state == "alive"]
        helpers = tuple(able[:INDIRECT_PROBES])
        self._probes.helped(probe, helpers)
        self._steps.extend((helper, PingRequest(probe.nonce, probe.node)) for helper in helpers)

    def _passed(self, probe: Probe, now: float, *, direct: bool) -> None:
        node = probe.node
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
                self._clear(node, known)
            else:
                self._await(node, suspicion)

    def _failed(self, probe: Probe, now: float) -> None:
        node = probe.node
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
        self._await(node, known.suspicion)
        self._turn(node, known, "suspect")

    def _await(self, node: NodeId, suspicion: Suspicion) -> None:
        self._suspects.set(node, suspicion.deadline(len(self._live)))

    def _clear(self, node: NodeId, known: _Known) -> None:
        known.suspicion = None
        self._suspects.drop(node)
        self._turn(node, known, "alive")

    def _convict(self, node: NodeId, known: _Known) -> None:
        """Dead at once when we failed to reach it and enough others found it dead."""
        if known.suspicion is not None and known.suspicion.convicted(len(self._live)):
            self._die(node, known)

    def _expire(self, now: float) -> None:
        for node in self._suspects.take(now):
            known = self._known[node]
            suspicion = known.suspicion
            if suspicion is None:  # pragma: no cover - dropped together
                continue
            if suspicion.deadline(len(self._live)) > now:
                self._await(node, suspicion)  # the network grew meanwhile
            elif known.heard_at >= suspicion.started:
                self._clear(node, known)
            else:
                self._die(node, known)

    def _die(self, node: NodeId, known: _Known) -> None:
        known.suspicion = None
        known.strikes = 0
        self._suspects.drop(node)
        self._testimony.append(node)
        self._turn(node, known, "dead")

    def _turn(self, node: NodeId, known: _Known, state: Liveness) -> None:
        if known.state != state:
            known.state = state
            if state == "dead":
                self._live.discard(node)
            else:
                self._live.add(node)
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
        self._probes.shift(late)
        self._suspects.shift(late)
        for known in self._known.values():
            if known.suspicion is not None:
                known.suspicion.started += late
