"""An executor that computes nothing but remembers everything, and can be held at any call."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from diffuse_core.domain.decoding import Drawn
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import Refused
from diffuse_core.model_ports import StageResult
from diffuse_core.services.lane import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from diffuse_core.model_ports import StageStep

WHOLE = Slice(0, 4)
PATIENCE_S = 10.0


class FakeClock:
    """A clock that only the executor moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


def answer(tokens: Sequence[int]) -> int:
    """What the executor says after `tokens`."""
    value = 7
    for token in tokens:
        value = (31 * value + token + 1) % 9973
    return value


class Hold:
    """Stops the executor thread at its next call."""

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self._released = threading.Event()

    def wait_at(self) -> None:
        self._arrived.set()
        assert self._released.wait(PATIENCE_S)

    def arrived(self) -> bool:
        return self._arrived.is_set()

    def release(self) -> None:
        self._released.set()


class ScriptedExecutor:
    """Implements model_ports.Executor. A short pass takes `short_s`, a long one `bits` bits."""

    def __init__(self, clock: FakeClock, *, short_s: float = 0.01, bits: int = 1) -> None:
        self.slice = WHOLE
        self.weight_bytes = 1
        self.clock = clock
        self.short_s = short_s
        self.bits = bits
        self.calls: list[tuple[str, object]] = []
        self.bit_seconds: list[float] = []
        self.short_ends: list[float] = []
        self.seen: dict[bytes, list[int]] = {}
        self.refuse: set[bytes] = set()
        self.explode: set[bytes] = set()
        self._hold: Hold | None = None
        self._inside = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[Hold]:
        """Hold the next pass until the end of the block, if not released before."""
        self._hold = hold = Hold()
        try:
            yield hold
        finally:
            hold.release()

    @contextmanager
    def _call(self, what: str, whom: object) -> Iterator[None]:
        assert self._inside.acquire(blocking=False), "two calls at once"
        try:
            self.calls.append((what, whom))
            if self._hold is not None and what in ("run", "advance"):
                hold, self._hold = self._hold, None
                hold.wait_at()
            yield
        finally:
            self._inside.release()

    def open(self, session: bytes, part: Slice, budget: int) -> None:
        with self._call("open", session):
            if session in self.seen:
                raise Refused("open already")
            self.seen[session] = []

    def close(self, session: bytes) -> None:
        with self._call("close", session):
            self.seen.pop(session, None)

    def run(self, steps: Sequence[StageStep]) -> list[StageResult | Refused]:
        sessions = [step.session for step in steps]
        assert len(set(sessions)) == len(sessions)
        with self._call("run", sessions):
            self.clock.now += self.short_s
            self.short_ends.append(self.clock.now)
            if self.explode.intersection(sessions):
                raise RuntimeError("the executor is broken")
            return [self._outcome(step) for step in steps]

    def start(self, step: StageStep) -> ScriptedPass:
        with self._call("start", step.session):
            if step.session in self.refuse:
                raise Refused("cannot be started")
            return ScriptedPass(self, step)

    def _outcome(self, step: StageStep) -> StageResult | Refused:
        if step.session in self.refuse:
            return Refused("the numbers are bad")
        seen = self.seen[step.session]
        assert step.position == len(seen)
        seen.extend(step.tokens)
        return StageResult(None, (Drawn(answer(seen)),) if step.chooser else (), self.short_s)

    def passes(self) -> list[tuple[str, object]]:
        return [call for call in self.calls if call[0] in ("run", "start", "advance")]

    def short_passes(self) -> list[object]:
        return [whom for what, whom in self.calls if what == "run"]


class ScriptedPass:
    """Takes as many bits as the executor says, each just as long as allowed."""

    def __init__(self, executor: ScriptedExecutor, step: StageStep) -> None:
        self._executor = executor
        self._step = step
        self._left = executor.bits
        assert rows_of(step) > 1

    def advance(self, seconds: float) -> StageResult | Refused | None:
        executor = self._executor
        with executor._call("advance", self._step.session):
            assert self._left > 0, "advanced after its end"
            executor.bit_seconds.append(seconds)
            executor.clock.now += seconds
            if self._step.session in executor.explode:
                raise RuntimeError("the executor is broken")
            self._left -= 1
            return None if self._left else executor._outcome(self._step)
