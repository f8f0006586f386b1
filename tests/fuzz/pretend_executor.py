"""An executor that computes next to nothing, and holds whoever gives it work to the rules."""

from __future__ import annotations

import asyncio
import math
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from diffuse_core.errors import Refused
from diffuse_core.model_ports import StageResult, Tensor
from diffuse_core.services.lane import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import StageStep

PASS_S = 0.002


class PretendCompute:
    """Stands for services.compute.ComputeThread in virtual time: work in order of arrival."""

    def __init__(self) -> None:
        self.here = False
        self._last: asyncio.Task[Any] | None = None

    async def run(self, work: Callable[[], Any], *, brief: bool = False) -> Any:
        """Run `work` after what came before; whoever waits may be cancelled, the work is not."""
        return await asyncio.shield(self._place(work, 0.0 if brief else PASS_S))

    def post(self, work: Callable[[], object]) -> None:
        """The same, without waiting."""
        self._place(work, PASS_S)

    def _place(self, work: Callable[[], Any], seconds: float) -> asyncio.Task[Any]:
        # The place is taken now, and not when the task begins.
        self._last = asyncio.ensure_future(self._after(self._last, work, seconds))
        return self._last

    async def _after(
        self, before: asyncio.Task[Any] | None, work: Callable[[], Any], seconds: float
    ) -> Any:
        if before is not None:
            await asyncio.wait([before])
        await asyncio.sleep(seconds)
        return work()


class PretendExecutor:
    """Implements model_ports.Executor. What no Stage may ever ask for fails."""

    rows_alone = 8
    weight_bytes = 1

    def __init__(self, part: Slice, layers: int, width: int, vocab: int) -> None:
        self.slice = part
        self._layers = layers
        self._width = width
        self._vocab = vocab
        self.rows: dict[bytes, int] = {}
        """Of each Session that is open, how many it has."""
        self._budgets: dict[bytes, int] = {}

    def open(self, session: bytes, part: Slice, budget: int) -> None:
        """Open a Session."""
        assert session not in self.rows
        assert self.slice.contains(part)
        self.rows[session], self._budgets[session] = 0, budget

    def close(self, session: bytes) -> None:
        """Forget it."""
        self.rows.pop(session, None)

    def run(self, steps: Sequence[StageStep]) -> list[StageResult | Refused]:
        """One pass."""
        assert len({step.session for step in steps}) == len(steps)
        return [self._pass(step) for step in steps]

    def start(self, step: StageStep) -> _Long:
        """A pass that takes two bits."""
        return _Long(self, step)

    def _pass(self, step: StageStep) -> StageResult | Refused:
        if step.session not in self.rows:
            return Refused("no such session is open here; open it first")
        rows = rows_of(step)
        assert rows
        assert step.position <= self.rows[step.session]
        assert step.position + rows <= self._budgets[step.session]
        assert not step.alone or rows <= self.rows_alone
        try:
            self._check(step)
        except Refused as refusal:
            return refusal
        self.rows[step.session] = step.position + rows
        if step.part.end < self._layers:
            assert step.chooser is None
            data = bytes(array("f", [1.0 + step.position % 7] * rows * self._width))
            return StageResult(Tensor("fp32", (rows, self._width), data), (), PASS_S)
        return self._draw(step) if step.chooser is not None else StageResult(None, (), PASS_S)

    def _check(self, step: StageStep) -> None:
        if step.tokens is not None:
            assert step.part.start == 0
            if max(step.tokens) >= self._vocab:
                raise Refused("a token id is outside the vocabulary")
            return
        assert step.hidden is not None
        numbers = np.frombuffer(step.hidden.data, np.float32).reshape(step.hidden.shape)
        with np.errstate(all="ignore"):
            rms = np.sqrt((numbers.astype(np.float64) ** 2).mean(axis=1)).tolist()
        if not all(map(math.isfinite, rms)):
            raise Refused("the hidden states hold NaN or infinity")
        if step.check is not None:
            step.check(step.position, rms)

    def _draw(self, step: StageStep) -> StageResult | Refused:
        drafts, end = step.drafts, self.rows[step.session]
        first = end - len(drafts)
        assert step.chooser is not None
        logits = np.zeros((1 + len(drafts), self._vocab), np.float32)
        for row in range(len(logits)):
            logits[row, (first + row) * 5 % self._vocab] = 9.0
        try:
            drawn = step.chooser.choose(logits, first, drafts)
        except Refused as refusal:
            self.close(step.session)
            return Refused(str(refusal), "lost")
        self.rows[step.session] = min(end, first + len(drawn) - 1)
        return StageResult(None, drawn, PASS_S)


class _Long:
    """Implements model_ports.LongPass."""

    def __init__(self, executor: PretendExecutor, step: StageStep) -> None:
        self._executor = executor
        self._step: StageStep | None = step
        self._begun = False

    def advance(self, _seconds: float) -> StageResult | Refused | None:
        """Half of it."""
        if not self._begun:
            self._begun = True
            return None
        assert self._step is not None
        step, self._step = self._step, None
        return self._executor._pass(step)
