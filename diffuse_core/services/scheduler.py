"""The scheduler: whose rows run next on a loaded Slice, and whose run together.

It takes what is there and waits for nobody. Steps of few rows (a token each, as a rule) go
through the Slice in one pass, one step a Session. A step of many rows (a piece of a prompt) is
worked on bit by bit, one bit between two short passes, no longer than those take: so whoever is
being answered waits at most about twice as long for a token while somebody's prompt arrives.

While nothing runs, a brief pass is run in the event loop, and what it gave is handed on in the
very same call: right after a pass the caches hold weights, so that each further step of the code
on the way of a token costs several times its usual time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections import deque
from typing import TYPE_CHECKING, Literal, NamedTuple

from diffuse_core.errors import Refused
from diffuse_core.services.lane import Lane, Taker, is_short, rows_of, work_of
from diffuse_core.services.pass_costs import PassCosts
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import Executor, StageResult, StageStep
    from diffuse_core.ports import Clock
    from diffuse_core.services.compute import ComputeThread
    from diffuse_core.services.meter import Meter

log = logging.getLogger(__name__)

MAX_BATCH = 64
SHARED = 4
"""So many steps cost hardly more in one pass than one does; more may have several."""
MAX_STEPS = 8192
"""Steps of one Session that may wait: a prompt of a million tokens, cut as it should be."""
TURNS = 3
"""Of the event loop between two passes that it ran itself, for what came in during the first to
get to where it waits for the next: from the socket to a reader, and on to its Lane."""


class Scheduler:
    """Owns a loaded Slice's executor. To be used from the event loop only."""

    def __init__(
        self, executor: Executor, compute: ComputeThread, clock: Clock, meter: Meter
    ) -> None:
        self._executor = executor
        self._compute = compute
        self._clock = clock
        self._meter = meter
        self._short: deque[Lane] = deque()
        self._long: deque[Lane] = deque()
        self._begun: Lane | None = None
        self._begun_s = 0.0
        self._lanes: set[Lane] = set()
        self._wanted = asyncio.Event()
        self._rests = False
        """Nothing runs or waits to be run by `_work`."""
        self._called = False
        self._costs = PassCosts()
        self._tasks = TaskOwner("scheduler")
        self._tasks.spawn(self._work(), "passes")

    async def open(self, lane: Lane, part: Slice, budget: int) -> None:
        """Open the lane's Session in the executor.

        Raises:
            Refused: by the executor; or the lane was closed before its turn came.
        """
        if lane.closed:
            # It was freed already, and nobody would do so again.
            raise Refused("the session was closed before it was opened", "lost")
        self._lanes.add(lane)
        await self._compute.run(lambda: self._executor.open(lane.session, part, budget))

    def submit(self, lane: Lane, step: StageStep) -> None:
        """Have a step run after those that were submitted before; dropped when all is over.

        Raises:
            Refused: too many wait already.
        """
        if lane.over:
            return
        if len(lane.steps) >= MAX_STEPS:
            raise Refused("too many rows wait at this stage")
        lane.steps.append(step)
        self._line_up(lane)

    async def outcome(
        self, lane: Lane, taker: Taker | None = None
    ) -> tuple[StageStep, StageResult | None]:
        """The next step that had its pass, and what came of it.

        As long as this waits, `taker` gets every outcome instead; None is what it took and left
        something to do about.

        Raises:
            Refused: by the executor, or because it failed ("lost"); nothing comes after that.
        """
        if lane.outcomes.empty():
            lane.taker = taker
        try:
            step, outcome = await lane.outcomes.get()
        finally:
            lane.taker = None
        if isinstance(outcome, Exception):
            raise outcome
        self._line_up(lane)
        return step, outcome

    def rest(self, lane: Lane) -> bool:
        """Forget the steps that wait; whether the outcome of another is still to be taken.

        A pass under way goes on. Steps that are submitted from now on run as ever.
        """
        if self._begun is lane:
            while len(lane.steps) > 1:
                lane.steps.pop()
        else:
            lane.steps.clear()
        for waiting in (self._short, self._long):
            if lane in waiting:
                waiting.remove(lane)
                lane.in_turn = False
        return lane.in_turn or not lane.outcomes.empty()

    def reopen(self, lane: Lane) -> None:
        """Take steps again after one was refused that left the Session as it was."""
        if not lane.closed:
            lane.over = lane.in_turn = False

    def close(self, lane: Lane) -> None:
        """Drop what waits, and free the Session in the executor after what it runs now."""
        if not lane.closed:
            lane.closed = True
            self._lanes.discard(lane)
            self._end(lane)
            self._compute.post(lambda: self._free(lane))

    async def stop(self) -> None:
        """Run nothing more."""
        self._rests = False
        await self._tasks.close()

    def _free(self, lane: Lane) -> None:
        lane.long = None
        self._executor.close(lane.session)

    @property
    def waiting(self) -> int:
        """Sessions whose next step waits for its pass, or is amid one of many rows."""
        return len(self._short) + len(self._long) + (self._begun is not None)

    # --- whose turn it is -------------------------------------------------------------

    def _line_up(self, lane: Lane) -> None:
        if lane.ready:
            lane.in_turn = True
            (self._short if is_short(lane.steps[0]) else self._long).append(lane)
            lane.since = self._clock.monotonic()
            if not self._rests:
                self._wanted.set()
            elif not self._called:
                # All that comes in this turn of the event loop is to run together.
                self._called = True
                asyncio.get_running_loop().call_soon(self._run_here)

    def _end(self, lane: Lane) -> None:
        """Give a lane no turn any more."""
        lane.over = True
        lane.steps.clear()
        for waiting in (self._short, self._long):
            if lane in waiting:
                waiting.remove(lane)
        if self._begun is lane:
            self._begun = None

    async def _work(self) -> None:
        while True:
            if self._short:
                await self._run_short()
                # Turns of the loop for those who have their next step ready at once: else two
                # Sessions out of step would take turns for ever instead of sharing a pass.
                others = 0 < len(self._short) < len(self._lanes)
                for _ in range(TURNS if others else 1):
                    await asyncio.sleep(0)
            if self._begun is None and self._long:
                self._begun, self._begun_s = self._long.popleft(), 0.0
            if self._begun is not None:
                await self._advance(self._begun)
            if not self._short and not self._long and self._begun is None:
                self._wanted.clear()
                self._rests = True
                await self._wanted.wait()
                self._rests = False

    # --- passes -----------------------------------------------------------------------

    def _run_here(self) -> None:
        """The pass that waits, at once and in the event loop, if it may be; or `_work` does it."""
        self._called = False
        lanes = self._next_short()
        if not (lanes and self._rests and self._compute.here and self._is_brief(lanes)):
            self._wanted.set()
            return
        self._rests = False
        short = self._take(lanes)
        try:
            outcomes, seconds = self._timed_run(short.steps)
        except Exception as error:  # noqa: BLE001 - logged there
            outcomes, seconds = short.failed(error)
        self._hand_on(short, outcomes, seconds)
        self._rests = True
        if self._short or self._long:
            self._wanted.set()

    async def _run_short(self) -> None:
        """One pass of whoever waits with few rows."""
        lanes = self._next_short()
        brief = self._is_brief(lanes)
        short = self._take(lanes)
        try:
            outcomes, seconds = await self._compute.run(
                lambda: self._timed_run(short.steps), brief=brief
            )
        except Exception as error:  # noqa: BLE001 - logged there
            outcomes, seconds = short.failed(error)
        self._hand_on(short, outcomes, seconds)

    def _next_short(self) -> list[Lane]:
        """Who has part in the next short pass.

        Of many, as many groups are made as there are Stages on their way: so the Stages after
        this one have their rows sooner, and each computes while the others do.
        """
        most = MAX_BATCH
        if len(self._short) > SHARED:
            share = math.ceil(sum(1 / lane.stages for lane in self._lanes))
            most = min(most, max(SHARED, share))
        return list(itertools.islice(self._short, most))

    def _is_brief(self, lanes: list[Lane]) -> bool:
        return self._costs.is_brief(sum(work_of(lane.steps[0]) for lane in lanes))

    def _take(self, lanes: list[Lane]) -> _ShortPass:
        for _ in lanes:
            self._short.popleft()
        now = self._clock.monotonic()
        steps = [lane.steps.popleft() for lane in lanes]
        return _ShortPass(lanes, steps, [now - lane.since for lane in lanes])

    def _hand_on(
        self, short: _ShortPass, outcomes: list[StageResult | Refused], seconds: float
    ) -> None:
        """Deliver what a short pass gave, and only then take note of what it cost."""
        soon = len(outcomes) > 1
        for lane, step, outcome in zip(short.lanes, short.steps, outcomes, strict=True):
            self._deliver(lane, step, outcome, soon=soon)
        rows = work = 0
        for lane, step, waited, outcome in zip(*short, outcomes, strict=True):
            if not isinstance(outcome, Refused):
                rows += rows_of(step)
                work += work_of(step)
                self._count(lane, step, outcome)
                if not lane.over:
                    self._meter.waited(waited)
        if rows:
            self._costs.add(seconds, work, self._clock.monotonic())
            # Guesses, replays and audits are passes of many rows of one Session: of these a
            # token's own step tells nothing.
            self._meter.add(rows, seconds, short=all(rows_of(step) == 1 for step in short.steps))

    def _count(self, lane: Lane, step: StageStep, result: StageResult) -> None:
        tally = self._meter.tally
        tally.rows(step.position, rows_of(step), lane.prompt)
        tally.drawn += len(result.drawn)

    def _timed_run(self, steps: list[StageStep]) -> tuple[list[StageResult | Refused], float]:
        started = self._clock.monotonic()
        outcomes = self._executor.run(steps)
        if len(outcomes) != len(steps):
            raise RuntimeError(f"{len(outcomes)} outcomes for {len(steps)} steps")
        return outcomes, self._clock.monotonic() - started

    async def _advance(self, lane: Lane) -> None:
        """One bit of the long pass that was begun."""
        step, seconds = lane.steps[0], self._costs.bit_s(self._clock.monotonic())
        outcome: StageResult | Refused | None
        try:
            outcome, took = await self._compute.run(lambda: self._timed_bit(lane, step, seconds))
        except Refused as error:
            outcome, took = error, 0.0
        except Exception as error:
            log.exception("a long pass failed")
            outcome, took = _failure(error), 0.0
        # Closed meanwhile, and another may have been begun: this one's time is nobody's.
        if self._begun is not lane:
            return
        self._begun_s += took
        if outcome is None:
            return
        self._begun = None
        lane.steps.popleft()
        if not isinstance(outcome, Refused):
            self._meter.add(rows_of(step), self._begun_s, short=False)
            self._count(lane, step, outcome)
        self._deliver(lane, step, outcome, soon=False)

    def _timed_bit(
        self, lane: Lane, step: StageStep, seconds: float
    ) -> tuple[StageResult | Refused | None, float]:
        started = self._clock.monotonic()
        if lane.long is None:
            lane.long = self._executor.start(step)
        outcome = lane.long.advance(seconds)
        if outcome is not None:
            lane.long = None
        return outcome, self._clock.monotonic() - started

    def _deliver(
        self, lane: Lane, step: StageStep, outcome: StageResult | Refused, *, soon: bool
    ) -> None:
        if lane.over:
            return
        lane.in_turn = False
        if isinstance(outcome, Refused):
            lane.outcomes.put_nowait((step, outcome))
            self._end(lane)
            return
        if lane.taker is None or not lane.outcomes.empty():
            lane.outcomes.put_nowait((step, outcome))
        elif (left := _taken(lane.taker, outcome, soon=soon)) is not True:
            lane.outcomes.put_nowait((step, left))
        self._line_up(lane)


class _ShortPass(NamedTuple):
    """Who has part in it, with which step, and for how many seconds that was ready."""

    lanes: list[Lane]
    steps: list[StageStep]
    waits: list[float]

    def failed(self, error: Exception) -> tuple[list[StageResult | Refused], float]:
        log.error("a pass of %d sessions failed", len(self.steps), exc_info=error)
        return [_failure(error) for _ in self.steps], 0.0


def _taken(taker: Taker, result: StageResult, *, soon: bool) -> Exception | Literal[True] | None:
    """True, or what is left for who waits: something to do, or an error."""
    try:
        return taker(result, soon=soon) or None
    except Exception as error:  # noqa: BLE001 - raised to who waits
        return error


def _failure(error: Exception) -> Refused:
    return Refused(f"the pass failed: {type(error).__name__}", "lost")
