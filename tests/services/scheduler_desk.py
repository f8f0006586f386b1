"""A scheduler over a scripted executor, and shorthand for what sessions do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.model_ports import StageStep
from diffuse_core.services.compute import ComputeThread
from diffuse_core.services.lane import Lane
from diffuse_core.services.meter import Meter
from diffuse_core.services.scheduler import Scheduler
from tests.greedy import GREEDY, last_token
from tests.services.scripted_executor import WHOLE, FakeClock, ScriptedExecutor, answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

LONG = 20


class Desk:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.executor = ScriptedExecutor(self.clock)
        self.compute = ComputeThread()
        self.meter = Meter(self.clock)
        self.scheduler = Scheduler(self.executor, self.compute, self.clock, self.meter)
        self.given: dict[Lane, list[int]] = {}

    async def lane(self, name: str) -> Lane:
        lane = Lane(name.encode())
        await self.scheduler.open(lane, WHOLE, 10_000)
        self.given[lane] = []
        return lane

    async def lanes(self, count: int) -> list[Lane]:
        return [await self.lane(f"{number:02}") for number in range(count)]

    def give(self, lane: Lane, tokens: int | Sequence[int] = 1) -> None:
        """Submit the next rows of a session."""
        if isinstance(tokens, int):
            tokens = [len(self.given[lane]) + at for at in range(tokens)]
        step = StageStep(
            session=lane.session,
            part=WHOLE,
            position=len(self.given[lane]),
            tokens=tuple(tokens),
            chooser=GREEDY,
        )
        self.given[lane].extend(tokens)
        self.scheduler.submit(lane, step)

    async def take(self, lane: Lane) -> int:
        step, result = await self.scheduler.outcome(lane)
        end = step.position + len(step.tokens)
        assert last_token(result) == answer(self.given[lane][:end])
        return end

    async def take_all(self, lane: Lane) -> None:
        while await self.take(lane) < len(self.given[lane]):
            pass

    async def idle(self) -> None:
        await self.compute.run(lambda: None)


async def open_desk() -> AsyncIterator[Desk]:
    made = Desk()
    yield made
    await made.scheduler.stop()
    made.compute.close()
