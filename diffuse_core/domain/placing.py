"""Placing: the life of a Host's slice, as a state machine with time as an argument.

    waiting → claiming → loading → ready
                ready → claiming → draining → loading → ready      moves, because it is needed
                          └→ ready                                 its claim fell, or is not needed
                any → leaving → ended                              the process stops

A Host that moves announces the slice that it goes to and still serves the one it has until the
claim stands and the Sessions are over: so nobody else goes there, and a claim that falls costs
nothing. The caller feeds `tick` (by `next_deadline`), `loaded`, `load_failed`, `drained` and
`leave`, and does what `drain` gives.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import msgspec

from diffuse_core.domain.claims import foreseen, settle
from diffuse_core.domain.healing import spared
from diffuse_core.domain.lookout import Lookout, Pace
from diffuse_core.domain.planner import DEFAULT_TARGET, Plan, plan
from diffuse_core.domain.roles import HoldState
from diffuse_core.domain.slices import Slice, replicas_per_layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.lookout import Finding
    from diffuse_core.domain.planner import HostSummary
    from diffuse_core.domain.shapes import ModelShape

MAX_ROUNDS = 8
"""Claims of a new Host that fall; the next one is taken in any case."""

Phase = Literal["waiting", "claiming", "draining", "loading", "ready", "leaving", "ended"]


class Publish(msgspec.Struct, frozen=True):
    """Announce this slice in this state."""

    slice: Slice
    state: HoldState


class Withdraw(msgspec.Struct, frozen=True):
    """Announce no slice at all."""


class Load(msgspec.Struct, frozen=True):
    """Load the slice of `plan`, then call `loaded` or `load_failed`."""

    plan: Plan


class Drain(msgspec.Struct, frozen=True):
    """Admit no Session any more, and call `drained` when none is left."""


class Resume(msgspec.Struct, frozen=True):
    """Admit Sessions again: the Host stays after all."""


class Unload(msgspec.Struct, frozen=True):
    """End what Sessions are left and give the memory back."""


class Stop(msgspec.Struct, frozen=True):
    """Nothing keeps the Host any longer."""


class Tell(msgspec.Struct, frozen=True):
    """Something for the owner's screen."""

    text: str


Step = Publish | Withdraw | Load | Drain | Resume | Unload | Stop | Tell


class Placing:
    """One Host's place in one model.

    Args:
        own: our id.
        capacity: bytes that weights and KV of the slice may take.
        shape: the model's sizes.
        max_layers: most layers to take, whatever the memory.
        target_replicas: holders per layer that the network aims at.
        model: its name, for errors.
        pace: how long things take.
    """

    def __init__(
        self,
        own: NodeId,
        capacity: int,
        shape: ModelShape,
        *,
        max_layers: int | None = None,
        target_replicas: int = DEFAULT_TARGET,
        model: str = "this model",
        pace: Pace | None = None,
    ) -> None:
        self._own = own
        self._capacity = capacity
        self._shape = shape
        self._max_layers = max_layers
        self._target = target_replicas
        self._model = model
        self._pace = pace or Pace()
        self._lookout = Lookout(
            own, shape, max_layers=max_layers, target_replicas=target_replicas, pace=self._pace
        )
        self._steps: list[Step] = []
        self._rounds = 0
        self._deadline = -math.inf
        self._finding: Finding | None = None
        self._fallback: Plan | None = None
        self.phase: Phase = "waiting"
        self.held: Plan | None = None
        """What is loaded, and served unless the phase says otherwise."""
        self.wish: Plan | None = None
        """What is claimed or loaded."""

    # --- what the caller asks --------------------------------------------------------------

    def plan(self, hosts: Sequence[HostSummary]) -> Plan:
        """What this Host would take now.

        Raises:
            UsageError: the capacity holds not even one layer; the message names what one needs.
        """
        return self._planned([host.slice for host in self._others(hosts)])

    def next_deadline(self) -> float:
        """When `tick` has something to do; inf when only an event will change anything."""
        return math.inf if self.phase in ("loading", "ended") else self._deadline

    def drain(self) -> list[Step]:
        """Take what is to be done, in order."""
        steps, self._steps = self._steps, []
        return steps

    # --- what happens ----------------------------------------------------------------------

    def tick(self, now: float, hosts: Sequence[HostSummary], nodes: int = 0) -> None:
        """Do what is due.

        Args:
            now: monotonic seconds.
            hosts: the live Hosts of the model that claim, load or are ready; ours may be there.
            nodes: live nodes of the network, which news must reach.

        Raises:
            UsageError: as `plan`.
        """
        if now < self.next_deadline():
            return
        others = self._lookout.fresh(self._others(hosts), now)
        match self.phase:
            case "waiting":
                self._claim(self._planned([one.slice for one in others]), now, nodes)
            case "claiming" if self.held is None:
                self._settle_first(others, now, nodes)
            case "claiming":
                self._settle_move(others, now)
            case "draining":
                self._go(others, now)
            case "ready":
                self._look(others, now, nodes)
            case _:  # leaving: while a slice is loaded, and in the end, nothing is ever due
                self._end()

    def loaded(self, now: float) -> None:
        """The slice of the last `Load` is loaded."""
        if self.phase != "loading":
            return
        moved = self._finding is not None
        self.held, self.wish = self.wish, None
        self._finding = self._fallback = None
        self._rest(now, self._pace.cool_s if moved else 0.0)

    def load_failed(self, now: float) -> bool:
        """Loading failed; whether there is a slice to go back to. If not, the Host is at its end.

        After a failed move that is the slice it came from, and it stays there for long.
        """
        if self.phase != "loading" or self._fallback is None:
            self._steps.append(Withdraw())
            self.phase = "ended"
            return False
        self.wish, self._fallback = self._fallback, None
        self._lookout.rest(now + self._pace.cool_after_failure_s, gaps_too=True)
        self._load(self.wish)
        return True

    def drained(self) -> None:
        """No Session is left: `tick` has something to do now."""
        if self.phase == "draining":
            self._deadline = -math.inf
        elif self.phase == "leaving":
            self._end()

    def leave(self, now: float, sessions: int, patience: float | None = None) -> None:
        """The process is to stop: Sessions that run have a bounded time to finish.

        That is `patience` seconds from now, by default the pace's; asked again, the new time
        counts.
        """
        if self.phase == "ended":
            return
        self._deadline = now + (self._pace.stop_s if patience is None else patience)
        if self.phase == "leaving":
            return
        serving = self.held is not None and sessions > 0
        if self.held is not None:
            self._steps.append(Publish(self.held.slice, "leaving"))
        self.phase = "leaving"
        if serving:
            self._steps.append(Drain())
        else:
            self._end()

    # --- claiming --------------------------------------------------------------------------

    def _claim(self, wish: Plan, now: float, nodes: int) -> None:
        self.phase = "claiming"
        self.wish = wish
        self._deadline = now + self._pace.settle_time(nodes)
        self._steps.append(Publish(wish.slice, "claiming"))

    def _settle_first(self, others: Sequence[HostSummary], now: float, nodes: int) -> None:
        wish = self._wish()
        self._rounds += 1
        if self._rounds > MAX_ROUNDS or self._stands(wish, others):
            self._rounds = 0
            self._load(wish)
            return
        self._steps.append(Tell(f"another host took {wish.slice} first; planning again"))
        held = foreseen(
            self._own,
            others,
            self._shape,
            counted=wish.counted,
            target_replicas=self._target,
        )
        self._claim(self._planned(held), now, nodes)

    def _settle_move(self, others: Sequence[HostSummary], now: float) -> None:
        wish, finding = self._wish(), self._found()
        stands = finding.together or self._stands(wish, others)
        if not (stands and self._worth_it(others)):
            self._stay(others, now)
            return
        self._steps.append(Tell(f"leaves layers {self._held().slice}: {wish.reason}"))
        self._steps.append(Publish(wish.slice, "loading"))
        self._steps.append(Drain())
        self.phase = "draining"
        self._deadline = now + self._pace.drain_s

    def _worth_it(self, others: Sequence[HostSummary]) -> bool:
        """Whether the move still helps, and harms nobody."""
        wish, finding, total = self._wish(), self._found(), self._shape.layers
        if finding.together:
            parts = [one.slice for one in others]
            return min(replicas_per_layer(total, [*parts, wish.slice])) > 0
        coming = (one.slice for one in others if one.state in ("loading", "ready"))
        counts = replicas_per_layer(total, coming)[wish.slice.start : wish.slice.end]
        lacking = 1 if finding.gap else self._target
        return min(counts) < lacking and spared(self._own, self._held().slice, others, total)

    def _stay(self, others: Sequence[HostSummary], now: float) -> None:
        text = f"stays at {self._held().slice}: it is not needed at {self._wish().slice} now"
        self._steps.append(Tell(text))
        if self._found().together:
            self._lookout.alone(others, now)
        self.wish = self._finding = None
        self._rest(now, self._pace.cool_after_claim_s)

    def _stands(self, wish: Plan, others: Sequence[HostSummary]) -> bool:
        told = [(one.node, one.slice, one.state) for one in others]
        return settle(self._own, wish.slice, told, counted=wish.counted)

    # --- loading, serving, leaving ---------------------------------------------------------

    def _go(self, others: Sequence[HostSummary], now: float) -> None:
        """Leave the slice that is held and load the one that is claimed."""
        if not self._worth_it(others):
            self._steps.append(Resume())
            self._stay(others, now)
            return
        wish = self._wish()
        self._fallback, self.held = self._held(), None
        self._steps.append(Unload())
        self._load(wish)

    def _load(self, wish: Plan) -> None:
        self.phase = "loading"
        self._steps.append(Publish(wish.slice, "loading"))
        self._steps.append(Load(wish))

    def _rest(self, now: float, seconds: float) -> None:
        """Serve what is held, and want nothing else for some time."""
        self.phase = "ready"
        self._deadline = now + self._pace.look_s
        self._lookout.rest(now + seconds)
        self._steps.append(Publish(self._held().slice, "ready"))

    def _look(self, others: Sequence[HostSummary], now: float, nodes: int) -> None:
        self._deadline = now + self._pace.look_s
        self._finding = self._lookout.look(
            others, self._held().slice, self._capacity, now, self._pace.settle_time(nodes)
        )
        if self._finding is not None:
            self._claim(self._finding.plan, now, nodes)
            if self._finding.together:
                self._deadline += self._pace.patience * self._pace.look_s

    def _end(self) -> None:
        self.phase = "ended"
        self._steps += [Unload(), Stop()]

    # --- small things ----------------------------------------------------------------------

    def _others(self, hosts: Sequence[HostSummary]) -> list[HostSummary]:
        return [host for host in hosts if host.node != self._own]

    def _planned(self, held: Sequence[Slice]) -> Plan:
        return plan(
            self._capacity,
            self._shape,
            held,
            max_layers=self._max_layers,
            own=self._own,
            target_replicas=self._target,
            model=self._model,
        )

    def _wish(self) -> Plan:
        assert self.wish is not None  # noqa: S101  (claims and loads have one)
        return self.wish

    def _held(self) -> Plan:
        assert self.held is not None  # noqa: S101  (who moves or serves has one)
        return self.held

    def _found(self) -> Finding:
        assert self._finding is not None  # noqa: S101  (who moves has one)
        return self._finding
