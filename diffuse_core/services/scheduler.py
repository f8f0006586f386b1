"""The scheduler: whose rows run next on a loaded Slice, and whose run together.

It takes what is there and waits for nobody. Steps of few rows (a token each, as a rule) go
through the Slice in one pass, one step a Session. A step of many rows (a piece of a prompt) is
worked on bit by bit, one bit between two short passes, no longer than those take: so whoever is
being answered waits at most about twice as long for a token while somebody's prompt arrives.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
from collections import deque
from typing import TYPE_CHECKING

from diffuse_core.errors import Refused
from diffuse_core.services.rhythm import Rhythm
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import Executor, LongPass, SessionId, StageResult, StageStep
    from diffuse_core.ports import Clock
    from diffuse_core.services.compute import ComputeThread
    from diffuse_core.services.meter import Meter

log = logging.getLogger(__name__)

SHORT_ROWS = 8
"""A step of at most so many rows runs together with others; never a matter of load."""
SHORT_ALONE = 32
"""The same of one whose rows are to be as if each ran alone: a token and guesses behind it."""
MAX_BATCH = 64
MAX_STEPS = 8192
"""Steps of one Session that may wait: a prompt of a million tokens, cut as it should be."""
AHEAD = 2
"""Outcomes that may wait for a slow next Stage before the Session's rows stop running."""
LONG_SHARE = 0.75
"""How long a bit of a long pass takes, in short passes: less than 1, for it ends with a layer."""
QUIET_BIT_S = 0.05
"""The same when nobody is being answered: what a newcomer may have to wait."""
QUIET_S = 2.0
REMEMBERED = 5
BRIEF_S = 0.02
"""A short pass that takes no longer is run in the event loop: what else it has to do can wait so
long, and the hand-over to a thread and back costs each token a quarter of a millisecond."""
ALIKE = 2048
"""So many positions before a row make it cost twice as much, at the worst: of a large context a
pass takes many times what it took a moment before of small ones."""
TURNS = 3
"""Of the event loop between two passes that it ran itself, for what came in during the first to
get to where it waits for the next: from the socket to a reader, and on to its Lane."""


def rows_of(step: StageStep) -> int:
    """How many positions a step computes."""
    if step.tokens is not None:
        return len(step.tokens)
    return step.hidden.shape[0] if step.hidden is not None else 0


def work_of(step: StageStep) -> int:
    """What its pass costs at most, in rows at the beginning of a text."""
    return rows_of(step) * (1 + step.position // ALIKE)


class Lane:
    """One Session's steps, in order, and what came of those that had their pass."""

    def __init__(self, session: SessionId) -> None:
        self.session = session
        self.steps: deque[StageStep] = deque()
        self.outcomes: asyncio.Queue[tuple[StageStep, StageResult | Refused]] = asyncio.Queue()
        self.in_turn = False
        """It waits for its turn, or has it: until then it gets no other."""
        self.over = False
        """No step of it runs any more: it was closed, or one failed."""
        self.closed = False
        self.since = 0.0
        """When it was last lined up."""
        self.long: LongPass | None = None
        """Belongs to the executor thread."""

    @property
    def ready(self) -> bool:
        """A step may be given its turn."""
        if self.over or self.in_turn or not self.steps:
            return False
        return self.outcomes.qsize() < AHEAD


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
        self._wanted = asyncio.Event()
        self._short_s: deque[float] = deque(maxlen=REMEMBERED)
        self._short_work: deque[int] = deque(maxlen=REMEMBERED)
        self._short_at = 0.0
        self._rhythm = Rhythm()
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

    async def outcome(self, lane: Lane) -> tuple[StageStep, StageResult]:
        """The next step that had its pass, and what came of it.

        Raises:
            Refused: by the executor, or because it failed ("lost"); nothing comes after that.
        """
        step, outcome = await lane.outcomes.get()
        if isinstance(outcome, Refused):
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
            self._end(lane)
            self._compute.post(lambda: self._free(lane))

    async def stop(self) -> None:
        """Run nothing more."""
        await self._tasks.close()

    def _free(self, lane: Lane) -> None:
        lane.long = None
        self._executor.close(lane.session)

    # --- whose turn it is -------------------------------------------------------------

    def _line_up(self, lane: Lane) -> None:
        if lane.ready:
            lane.in_turn = True
            (self._short if _is_short(lane.steps[0]) else self._long).append(lane)
            lane.since = self._clock.monotonic()
            self._rhythm.began(lane.since)
            self._wanted.set()

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
                for _ in range(TURNS if self._short else 1):
                    await asyncio.sleep(0)
            if self._begun is None and self._long:
                self._begun, self._begun_s = self._long.popleft(), 0.0
            if self._begun is not None:
                await self._advance(self._begun)
            if not self._short and not self._long and self._begun is None:
                self._rest()
                self._wanted.clear()
                await self._wanted.wait()

    # --- passes -----------------------------------------------------------------------

    async def _run_short(self) -> None:
        """One pass of whoever waits with few rows."""
        lanes = [self._short.popleft() for _ in range(min(len(self._short), MAX_BATCH))]
        steps = [lane.steps.popleft() for lane in lanes]
        outcomes: list[StageResult | Refused]
        brief = self._is_brief(sum(map(work_of, steps)))
        started = self._clock.monotonic()
        waits = [started - lane.since for lane in lanes]
        try:
            outcomes, seconds = await self._compute.run(
                lambda: self._timed_run(steps), brief=brief
            )
        except Exception as error:
            log.exception("a pass of %d sessions failed", len(steps))
            outcomes, seconds = [_failure(error) for _ in steps], 0.0
        rows = work = 0
        for lane, step, outcome in zip(lanes, steps, outcomes, strict=True):
            if not isinstance(outcome, Refused):
                rows += rows_of(step)
                work += work_of(step)
            self._deliver(lane, step, outcome)
        if rows:
            self._short_s.append(seconds)
            self._short_work.append(work)
            self._short_at = self._clock.monotonic()
            self._meter.add(rows, seconds, short=True)
            for lane, waited in zip(lanes, waits, strict=True):
                if not lane.over:
                    self._meter.waited(waited)

    def _rest(self) -> None:
        """Nothing is to be run: stay awake if that will change in a moment."""
        seconds = self._rhythm.ended(self._clock.monotonic())
        stay_awake = getattr(asyncio.get_running_loop(), "stay_awake", None)
        if seconds and stay_awake is not None:
            stay_awake(seconds)

    def _is_brief(self, work: int) -> bool:
        """Whether a pass of so much work will hardly take longer than BRIEF_S.

        Judged by each of the last ones, at the worst: that rows cost the same whoever shares
        the pass, and that fewer cost no less.
        """
        if len(self._short_s) < REMEMBERED:
            return False
        known = zip(self._short_s, self._short_work, strict=True)
        return all(seconds * max(1.0, work / had) <= BRIEF_S for seconds, had in known)

    def _timed_run(self, steps: list[StageStep]) -> tuple[list[StageResult | Refused], float]:
        started = self._clock.monotonic()
        outcomes = self._executor.run(steps)
        if len(outcomes) != len(steps):
            raise RuntimeError(f"{len(outcomes)} outcomes for {len(steps)} steps")
        return outcomes, self._clock.monotonic() - started

    async def _advance(self, lane: Lane) -> None:
        """One bit of the long pass that was begun."""
        step, seconds = lane.steps[0], self._bit_s()
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
        self._deliver(lane, step, outcome)

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

    def _bit_s(self) -> float:
        """How long a bit of a long pass may take now."""
        if not self._short_s or self._clock.monotonic() - self._short_at > QUIET_S:
            return QUIET_BIT_S
        return LONG_SHARE * statistics.median(self._short_s)

    def _deliver(self, lane: Lane, step: StageStep, outcome: StageResult | Refused) -> None:
        if lane.over:
            return
        lane.in_turn = False
        lane.outcomes.put_nowait((step, outcome))
        if isinstance(outcome, Refused):
            self._end(lane)
        else:
            self._line_up(lane)


def _is_short(step: StageStep) -> bool:
    return rows_of(step) <= (SHORT_ALONE if step.alone else SHORT_ROWS)


def _failure(error: Exception) -> Refused:
    return Refused(f"the pass failed: {type(error).__name__}", "lost")
