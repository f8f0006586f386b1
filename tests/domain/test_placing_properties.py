"""Placing under any picture and any event: what it must never do."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from domain_samples import ordered
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_samples import TEN, host

from diffuse_core.domain.claims import settle
from diffuse_core.domain.healing import spared
from diffuse_core.domain.lookout import Pace
from diffuse_core.domain.placing import Load, Placing, Publish, Unload
from diffuse_core.domain.slices import Slice, replicas_per_layer

if TYPE_CHECKING:
    from diffuse_core.domain.planner import HostSummary

ME = ordered(5)
PACE = Pace(patience=2, calm=3, cool_s=4.0, cool_after_failure_s=10.0)


class Watch:
    """Drives one Host by chance and checks every step."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.placing = Placing(ME, self.rng.choice([150, 350, 500, 800, 1600]), TEN, pace=PACE)
        self.now = 0.0
        self.others: list[HostSummary] = []
        self.claimed: tuple[Slice, float] | None = None
        self.rounds = 0
        self.failed = False
        self.moving = False
        self.loads = 0

    def turn(self) -> None:
        if self.rng.random() < 0.4:
            self._change()
        self.now += self.rng.choice([0.05, 0.7, 2.1, 2.1, 2.1, 40.0])
        serving = self.placing.held
        if self.placing.phase == "loading" and self.rng.random() < 0.7:
            self.failed = self.rng.random() < 0.2
            if not self.failed:
                self.placing.loaded(self.now)
            elif not self.placing.load_failed(self.now):
                self.placing.drain()
                return
        elif self.placing.phase in ("draining", "leaving") and self.rng.random() < 0.5:
            self.placing.drained()
        elif self.rng.random() < 0.005:
            self.placing.leave(self.now, self.rng.randrange(2))
        else:
            self.placing.tick(self.now, self.others, 4)
        for step in self.placing.drain():
            self._check(step, serving.slice if serving else None)

    def _change(self) -> None:
        """Somebody comes, goes, or says something else."""
        number = self.rng.choice([1, 2, 3, 4, 6, 7, 8])
        self.others = [one for one in self.others if one.node != ordered(number)]
        if self.rng.random() < 0.75:
            start = self.rng.randrange(10)
            end = min(10, start + self.rng.randint(1, 6))
            state = self.rng.choice(["claiming", "loading", "ready", "ready", "ready"])
            self.others.append(host(number, start, end, state, 800))

    def _check(self, step: object, serving: Slice | None) -> None:
        match step:
            case Publish(slice=part, state="claiming"):
                assert TEN.needed_bytes(part) <= self.placing._capacity
                self.rounds = self.rounds + 1 if self.claimed else 1
                self.claimed = (part, self.now)
            case Publish(state="ready"):
                self.claimed = None
            case Unload() if self.placing.phase == "loading":
                assert serving is not None
                finding = self.placing._finding
                if finding.together:
                    parts = [one.slice for one in self.others]
                    assert min(replicas_per_layer(10, [*parts, self.placing.wish.slice])) > 0
                else:
                    assert spared(ME, serving, self.others, 10)
                self.moving = True
            case Load(plan=plan) if not self.failed:
                self._check_load(plan.slice, plan.counted)
            case _:
                pass

    def _check_load(self, part: Slice, counted: tuple[Slice, ...]) -> None:
        self.loads += 1
        claimed, at = self.claimed
        assert part == claimed
        assert self.now - at >= PACE.settle_time(4)
        if not self.moving and self.rounds <= 8:
            told = [
                (one.node, one.slice, one.state)
                for one in self.placing._lookout.fresh(self.others, self.now)
            ]
            assert settle(ME, part, told, counted=counted)
        self.moving = False


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_nothing_is_loaded_without_a_claim_that_stood(seed: int) -> None:
    watch = Watch(seed)
    for _ in range(80):
        watch.turn()
    assert watch.loads or watch.placing.phase in ("waiting", "claiming", "ended")
