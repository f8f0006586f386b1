"""Liveness: SWIM failure detection with Lifeguard's local health, over node ids only.

After "SWIM" (Das, Gupta, Motivala 2002) and "Lifeguard" (Dadgar, Phillips, Currey 2018), with the
constants of hashicorp/memberlist. What differs, and why:

- Rumours are not believed: they make us look, and only probes of our own make a node dead. In a
  large network a first failure is not even told for a while (see `domain.suspicion`).
- A probe that is not answered in time is repeated along with asking others: one lost message
  makes no suspect.
- A node that cannot be reached at all (a refused connection is evidence, silence is not) is probed
  through others at once, and is dead after a few such probes in a row: a killed process on a live
  machine is noticed in about two seconds, one that is only paused is not.
- When our own clock jumped (we were paused), pending deadlines move by as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from diffuse_core.domain.agenda import Agenda
from diffuse_core.domain.health import LocalHealth
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import Ack, Ping, PingRequest
from diffuse_core.domain.pool import Pool, Round
from diffuse_core.domain.probes import (
    PROBE_INTERVAL_S,
    PROBE_TIMEOUT_S,
    Probe,
    Probes,
    Relays,
    smooth_rtt,
)
from diffuse_core.domain.suspicion import Known, Suspicion, quiet

if TYPE_CHECKING:
    import random

    from diffuse_core.domain.view import Liveness

INDIRECT_PROBES = 3
STRIKES = 3
HELPER_DRAWS = 4 * INDIRECT_PROBES
"""Enough that, unless most nodes are suspect, as many helpers as wanted are among them."""
JUMP_S = 1.0
SPARE_S = 10.0
"""A node that just passed our own probe is not suspected again on the word of others."""
RETRY_S = 0.5
ROUNDING_S = 1e-3

Step = tuple[NodeId, Ping | Ack | PingRequest]
Measured = Callable[[NodeId, float], None]


class FailureDetector:
    """Who is alive, suspect or dead, of the nodes it was told of.

    Feed it with what arrives and with `tick`; take what comes of it from the three `drain`s.
    `measured` is told of round trips.
    """

    def __init__(self, own: NodeId, rng: random.Random, measured: Measured | None = None) -> None:
        self._own = own
        self._measured = measured
        self._rng = rng
        self._known: dict[NodeId, Known] = {}
        self._live = Pool()
        self._round = Round(rng)
        self.probes = Probes(rng)
        self._relays = Relays(rng)
        self._suspects: Agenda[NodeId] = Agenda()
        self._probe_at = math.inf
        self._health = LocalHealth()
        self._steps: list[Step] = []
        self._changes: list[tuple[NodeId, Liveness]] = []
        self._testimony: list[NodeId] = []
        self.lost: list[NodeId] = []
        """Found dead, or so still after they were heard; for the caller to take."""

    # --- what is known ---------------------------------------------------------------------

    @property
    def health(self) -> int:
        """0 when all is well, up to MAX_HEALTH when we ourselves seem slow or cut off."""
        return self._health.level

    def state(self, node: NodeId) -> Liveness:
        """What we think of `node`; unknown ones are dead."""
        known = self._known.get(node)
        return "dead" if known is None else known.state

    def stance(self, node: NodeId) -> Liveness:
        """What we say of `node`: nothing ill before it is time to tell others."""
        known = self._known.get(node)
        suspicion = known.suspicion if known else None
        if suspicion is not None and not suspicion.told:
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
            self._known[node] = Known(heard_at=now)
            self._live.add(node)
            self._round.add(node, self._known)
            self._probe_at = min(self._probe_at, now + PROBE_INTERVAL_S)
            return
        known.heard_at = now
        known.strikes = 0
        self._clear(node, known)

    def forget(self, node: NodeId) -> None:
        """Drop all about `node`; without a change being reported."""
        self._known.pop(node, None)
        self._live.discard(node)
        self.probes.drop(node)
        self._suspects.drop(node)

    def heard(self, node: NodeId, now: float, *, met: bool = False) -> None:
        """Something came from `node` itself; or a channel with it opened (`met`)."""
        if met:
            self.probes.met(node, now)
        known = self._known.get(node)
        if known is None:
            return
        known.heard_at = now
        known.strikes = 0
        if known.state == "dead":
            self.probe(node, now)

    def probe(self, node: NodeId, now: float) -> None:
        """Ping `node` now, if it is known and no probe of it is under way."""
        if node in self._known and node not in self.probes:
            self._begin(node, now, direct=True)

    def accuse(self, node: NodeId, by: NodeId, now: float, *, dead: bool) -> None:
        """The member `by` says that probes of `node` failed (or even that it is dead)."""
        known = self._known.get(node)
        if known is None or known.state == "dead" or now < known.spared_until:
            return
        suspicion = known.suspicion or self._hear_of(node, known, now)
        suspicion.accuse(by)
        if dead:
            suspicion.claim_dead(by)
        if suspicion.ripe(now, len(self._live)):
            self._tell(node, suspicion)
        self._await(node, suspicion, now)

    def unreachable(self, node: NodeId, now: float) -> None:
        """Nothing can be delivered to `node`: the connection was refused, or broke."""
        known = self._known.get(node)
        if known is None or known.state == "dead":
            self.probes.drop(node)
            return
        probe = self.probes.get(node) or self._begin(node, now, direct=False)
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
        probe = self.probes.answered(sender, nonce)
        if probe is not None:
            self._passed(probe, nonce, now, direct=sender == probe.node)

    # --- time ------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """When `tick` has something to do, monotonic; inf when never."""
        return min(self._probe_at, self.probes.next(), self._suspects.next(), self._relays.next())

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._forgive_jump(now)
        self._relays.expire(now)
        for probe in self.probes.take(now):
            if now >= probe.deadline:
                self.probes.drop(probe.node)
                self._failed(probe, now)
            else:
                self._ask_helpers(probe)
                self._steps.append((probe.node, Ping(self.probes.again(probe, now))))
        for node in self._suspects.take(now):
            self._review(node, now)
        if now >= self._probe_at:
            self._probe_at = now + self._probe_s()
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
        probe = self.probes.begin(node, now, self._health.stretch)
        if probe is not None and direct:
            self._steps.append((node, Ping(probe.nonce)))
        return probe

    def _probe_next(self, now: float) -> None:
        """Probe in rounds, each in an order of its own: nobody waits longer than two rounds.

        When suspects are probed is up to their suspicion.
        """
        for node in self._round.take(self._known):
            if self._known[node].state == "alive" and node not in self.probes:
                self._begin(node, now, direct=True)
                return

    def _ask_helpers(self, probe: Probe) -> None:
        if probe.helpers is not None:
            return
        drawn = self.sample_live(HELPER_DRAWS)
        able = [one for one in drawn if one != probe.node and self._known[one].state == "alive"]
        helpers = tuple(able[:INDIRECT_PROBES])
        self.probes.helped(probe, helpers)
        self._steps.extend((helper, PingRequest(probe.nonce, probe.node)) for helper in helpers)

    def _passed(self, probe: Probe, nonce: int, now: float, *, direct: bool) -> None:
        node = probe.node
        known = self._known[node]
        known.heard_at = now
        known.strikes = 0
        if direct:
            sample = max(0.0, now - probe.sent_at(nonce))
            known.rtt_s = smooth_rtt(known.rtt_s, sample)
            if self._measured is not None:
                self._measured(node, sample)
            self._health.mend()
        suspicion = known.suspicion
        if suspicion is None:
            return
        suspicion.withdraw()
        if direct or suspicion.groundless:
            known.spared_until = -math.inf if suspicion.groundless else now + SPARE_S
            self._clear(node, known)
        else:
            suspicion.wait(now, len(self._live), self._rng)
            self._await(node, suspicion, now)

    def _failed(self, probe: Probe, now: float) -> None:
        node = probe.node
        known = self._known[node]
        if known.state == "dead":
            self.lost.append(node)
            return
        if probe.refused:
            known.strikes += 1
            if known.strikes >= STRIKES:
                self._die(node, known)
                return
        else:
            known.strikes = 0
            if known.state == "alive":
                self._health.ail()
        suspicion = known.suspicion or self._suspect(node, known, now)
        suspicion.fail(now)
        if suspicion.ripe(now, len(self._live), refused=probe.refused):
            self._tell(node, suspicion)
        self._judge(node, known, suspicion, now)
        if probe.refused and node in self._live:
            self._begin(node, now, direct=True)

    def _suspect(self, node: NodeId, known: Known, now: float) -> Suspicion:
        known.suspicion = suspicion = Suspicion(self._own, now)
        self._turn(node, known, "suspect")
        return suspicion

    def _hear_of(self, node: NodeId, known: Known, now: float) -> Suspicion:
        """In a small network look at once, and tell what came of it; else tell, and look soon."""
        suspicion = self._suspect(node, known, now)
        suspicion.wait(now, len(self._live), self._rng)
        if quiet(len(self._live)):
            self._tell(node, suspicion)
        else:
            self.probe(node, now)
        return suspicion

    def _tell(self, node: NodeId, suspicion: Suspicion) -> None:
        suspicion.told = True
        self._testimony.append(node)

    def _await(self, node: NodeId, suspicion: Suspicion, now: float) -> None:
        probe = self.probes.get(node)
        if probe is None:
            # Never in the past: that would look as if we had been paused.
            at = max(now, suspicion.review_at(len(self._live), self._probe_s()))
        else:
            at = probe.deadline + RETRY_S  # what comes of it decides
        self._suspects.set(node, at)

    def _clear(self, node: NodeId, known: Known) -> None:
        known.suspicion = None
        self._suspects.drop(node)
        self._turn(node, known, "alive")

    def _judge(self, node: NodeId, known: Known, suspicion: Suspicion, now: float) -> None:
        """A probe of ours failed: the end, or not yet."""
        if now < suspicion.deadline(len(self._live)) - ROUNDING_S:
            self._await(node, suspicion, now)
        elif known.heard_at >= suspicion.started:
            self._clear(node, known)
        else:
            self._die(node, known)

    def _review(self, node: NodeId, now: float) -> None:
        """A suspect is to be probed; what comes of that decides."""
        known = self._known[node]
        suspicion = known.suspicion
        assert suspicion is not None  # noqa: S101 - they come and go together
        if known.heard_at >= suspicion.started:
            self._clear(node, known)
            return
        if suspicion.review_at(len(self._live), self._probe_s()) <= now:
            self.probe(node, now)
        self._await(node, suspicion, now + RETRY_S)

    def _die(self, node: NodeId, known: Known) -> None:
        known.suspicion = None
        known.strikes = 0
        self._suspects.drop(node)
        self._testimony.append(node)
        self.lost.append(node)
        self._turn(node, known, "dead")

    def _turn(self, node: NodeId, known: Known, state: Liveness) -> None:
        if known.state != state:
            known.state = state
            if state == "dead":
                self._live.discard(node)
            else:
                self._live.add(node)
            self._changes.append((node, state))

    def ail(self) -> None:
        """Others suspect us: we may be the slow one."""
        self._health.ail()

    def _probe_s(self) -> float:
        """How long a probe of ours takes to fail."""
        return PROBE_INTERVAL_S * self._health.stretch

    def _forgive_jump(self, now: float) -> None:
        """Time in which we did not run proves nothing about the others."""
        late = now - self.next_deadline()
        if late <= JUMP_S:
            return
        self._health.ail()
        self._probe_at += late
        self.probes.shift(late)
        self._suspects.shift(late)
        for known in self._known.values():
            if known.suspicion is not None:
                known.suspicion.shift(late)
