"""A loaded Slice that runs passes of many Sessions, each with a cache of its own."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from diffuse_core.adapters.executor.engine import Rows
from diffuse_core.adapters.executor.long_pass import FAILURES, EngineLongPass, failed
from diffuse_core.adapters.executor.step_checks import Bounds, checked_rows
from diffuse_core.adapters.executor.tensors import rows_rms, to_wire
from diffuse_core.errors import Refused
from diffuse_core.model_ports import SessionId, StageResult, StageStep

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from diffuse_core.adapters.executor.engine import Engine, KVCache
    from diffuse_core.domain.decoding import Drawn
    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import TokenChooser


@dataclass
class _Session:
    cache: KVCache
    running: EngineLongPass | None = None


@dataclass(frozen=True)
class _Job:
    """A checked step."""

    step: StageStep
    session: _Session
    rows: Rows


class StageExecutor:
    """Implements model_ports.Executor over an engine.

    Not thread-safe: one thread calls everything.
    """

    def __init__(self, engine: Engine, part: Slice, bounds: Bounds) -> None:
        """`engine` holds the layers of `part`; `bounds` are the whole model's."""
        self._engine = engine
        self._slice = part
        self._bounds = bounds
        self._sessions: dict[SessionId, _Session] = {}

    @property
    def slice(self) -> Slice:
        """The layers held."""
        return self._slice

    @property
    def weight_bytes(self) -> int:
        """Bytes of the tensors held."""
        return self._engine.weight_bytes

    @property
    def rows_alone(self) -> int:
        """Rows of a Session that one step may hold, each to be as if it came alone."""
        return self._engine.rows_alone

    @torch.inference_mode()
    def open(self, session: SessionId, part: Slice, budget: int) -> None:
        """Start a Session through `part` for at most `budget` positions.

        Raises:
            Refused: the layers are not held here, the budget passes the model's context, or the
                Session is open already.
        """
        if session in self._sessions:
            raise Refused("the session is open here already")
        if not self._slice.contains(part):
            raise Refused(f"layers {part} are not held here, but {self._slice}")
        if not 1 <= budget <= self._bounds.context:
            raise Refused(
                f"{budget} positions were asked for; the model's context is {self._bounds.context}"
            )
        try:
            cache = self._engine.open(part, budget)
        except (MemoryError, RuntimeError) as error:
            raise Refused(f"there is no memory for {budget} positions here", "memory") from error
        self._sessions[session] = _Session(cache)

    @torch.inference_mode()
    def run(self, steps: Sequence[StageStep]) -> list[StageResult | Refused]:
        """Run steps of different Sessions in one pass; one outcome for each, in order.

        A step that contradicts its Session, the Slice or the model is Refused and the Session is
        as it was; one that fails or whose numbers are not finite is Refused and its Session
        closed, with the reason "lost": this Stage's own fault. `seconds` of a result is its share
        of the pass.
        """
        jobs: list[_Job] = []
        outcomes: list[StageResult | Refused | None] = []
        seen: set[SessionId] = set()
        for step in steps:
            try:
                jobs.append(self._job(step, seen))
                seen.add(step.session)
                outcomes.append(None)
            except Refused as refusal:
                outcomes.append(refusal)
        started = time.perf_counter()
        outputs = self._together(jobs)
        share = (time.perf_counter() - started) / max(len(jobs), 1)
        done = iter(
            [self._finish(job, output, share) for job, output in zip(jobs, outputs, strict=True)]
        )
        return [next(done) if outcome is None else outcome for outcome in outcomes]

    def start(self, step: StageStep) -> EngineLongPass:
        """Begin a pass of many rows. Until it is done its Session takes no other step.

        Raises:
            Refused: the step contradicts the Session, the Slice or the model.
        """
        job = self._job(step)

        def finish(output: torch.Tensor | Refused | None, seconds: float) -> StageResult | Refused:
            job.session.running = None
            return self._finish(job, output, seconds)

        work = EngineLongPass(self._engine.bit_by_bit(job.rows), finish)
        job.session.running = work
        return work

    def close(self, session: SessionId) -> None:
        """Free the Session's cache, also in the middle of a long pass; unknown ids are ignored."""
        found = self._sessions.pop(session, None)
        if found is not None and found.running is not None:
            found.running.abandon()

    def _idle(self, session: SessionId) -> _Session:
        found = self._sessions.get(session)
        if found is None:
            raise Refused("no such session is open here; open it first")
        if found.running is not None:
            raise Refused("the session is in the middle of a long pass", "busy")
        return found

    def _job(self, step: StageStep, others: Container[SessionId] = ()) -> _Job:
        if step.session in others:
            raise Refused("the session has another step in this pass", "busy")
        session = self._idle(step.session)
        cache = session.cache
        inputs = checked_rows(step, cache, self._bounds, self.rows_alone)
        if step.position < cache.length:
            # After everything that may be refused: a Session is as it was then.
            cache.crop(step.position)
        wanted = step.chooser is not None
        rows = Rows(
            cache,
            inputs,
            want_logits=wanted,
            alone=step.alone,
            drafts=len(step.drafts) if wanted else 0,
        )
        return _Job(step, session, rows)

    def _together(self, jobs: Sequence[_Job]) -> Sequence[torch.Tensor | Refused | None]:
        try:
            return self._engine.together([job.rows for job in jobs]) if jobs else []
        except FAILURES as error:
            if len(jobs) == 1:
                return [failed(error)]
        # One of them is at fault; an engine that raises leaves every cache as it was.
        return [self._together([job])[0] for job in jobs]

    def _finish(
        self, job: _Job, output: torch.Tensor | Refused | None, seconds: float
    ) -> StageResult | Refused:
        result = self._result(job, output, seconds)
        if isinstance(result, Refused):
            # A pass that stopped half-way may leave layers with different rows.
            self.close(job.step.session)
        return result

    def _result(
        self, job: _Job, output: torch.Tensor | Refused | None, seconds: float
    ) -> StageResult | Refused:
        if isinstance(output, Refused):
            return output
        if output is None:
            return StageResult(None, (), seconds)
        output = output.cpu()
        table = output.view(-1, output.shape[-1])
        if not all(map(math.isfinite, rows_rms(table))):
            return Refused(
                f"this stage computed NaN or infinity in layers {job.step.part}; the session was "
                "closed: ask again, and if it comes again use another contract",
                "lost",
            )
        if job.step.chooser is None:
            return StageResult(to_wire(output, self._bounds.dtype), (), seconds)
        try:
            drawn = self._drawn(job, job.step.chooser, table)
        except Refused as refusal:
            return Refused(str(refusal), "lost")
        return StageResult(None, drawn, seconds)

    def _drawn(self, job: _Job, chooser: TokenChooser, logits: torch.Tensor) -> tuple[Drawn, ...]:
        """What is drawn from the last rows; the rows of rejected drafts are forgotten."""
        cache, drafts = job.session.cache, job.step.drafts
        first = cache.length - len(drafts)
        drawn = chooser.choose(logits.numpy(), first, drafts)
        stands = first + len(drawn) - 1
        if stands < cache.length:
            cache.crop(stands)
        return drawn
