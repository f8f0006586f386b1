"""A Host under test: its placing, a clock, and what others say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain_samples import ordered
from placement_samples import TEN, host

from diffuse_core.domain.lookout import Pace
from diffuse_core.domain.placing import Placing, Publish, Tell
from diffuse_core.domain.slices import Slice

if TYPE_CHECKING:
    from diffuse_core.domain.planner import HostSummary

ME = 5
PACE = Pace(settle_s=1.0, look_s=2.0, patience=3, calm=5)
SETTLED_S = 1.01


class Desk:
    """A Host under test, with a clock and what others say."""

    def __init__(self, capacity: int = 800, **options: object) -> None:
        options.setdefault("pace", PACE)
        self.placing = Placing(ordered(ME), capacity, TEN, **options)
        self.now = 100.0
        self.hosts: list[HostSummary] = []

    def tick(self, seconds: float = 0.0) -> list:
        self.now += seconds
        self.placing.tick(self.now, self.hosts, 4)
        return self.steps()

    def steps(self) -> list:
        """What is to be done, but for the words."""
        return [step for step in self.placing.drain() if not isinstance(step, Tell)]

    def serve(self) -> Slice:
        """Claim, load and be ready; the slice."""
        self.tick()
        self.tick(SETTLED_S)
        self.placing.loaded(self.now)
        self.steps()
        return self.placing.held.slice

    def look(self, times: int) -> list:
        """What is to be done after so many looks; the earlier ones give nothing."""
        for _ in range(times - 1):
            assert self.tick(2.01) == []
        return self.tick(2.01)


def mover(**options: object) -> Desk:
    """One that serves what others hold too, and sees a gap at 5:10."""
    desk = Desk(**options)
    desk.hosts = [host(1, 5, 10)]
    part = desk.serve()
    assert part == Slice(0, 5)
    desk.hosts = [host(7, 0, 5), host(8, 0, 5)]
    return desk


def claimed() -> Desk:
    desk = mover()
    assert desk.look(3) == [Publish(Slice(5, 10), "claiming")]
    return desk
