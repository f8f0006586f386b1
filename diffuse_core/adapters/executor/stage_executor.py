"""A loaded Slice that runs passes of many Sessions, each with a cache of its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from diffuse_core.adapters.executor.part_module import PartModule
from diffuse_core.adapters.executor.session_cache import SessionCache
from diffuse_core.adapters.executor.step_checks import checked_rows
from diffuse_core.adapters.executor.tensors import DTYPES, to_wire
from diffuse_core.domain.sampling import sample
from diffuse_core.errors import Refused
from diffuse_core.ports import SessionId, StageResult, StageStep, TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diffuse_core.adapters.executor.skeleton import Plan
    from diffuse_core.domain.slices import Slice

MAX_KEPT_PARTS = 8


class StageExecutor:
    """Implements ports.Executor. Not thread-safe: one thread calls everything."""

    def __init__(
        self,
        plan: Plan,
        part: Slice,
        contract: TensorType,
        weights: Mapping[str, torch.Tensor],
        module: Any,
    ) -> None:
        """Take over loaded `weights` (by the whole model's names) and the module of `part`."""
        self._plan = plan
        self._slice = part
        self._contract = contract
        self._weights = weights
        self._sessions: dict[SessionId, SessionCache] = {}
        self._parts = {part: PartModule(plan, part, weights, module)}

    @property
    def slice(self) -> Slice:
        """The layers held."""
        return self._slice

    @property
    def weight_bytes(self) -> int:
        """Bytes of the tensors held; a tied embedding and head count once."""
        unique = {tensor.data_ptr(): tensor.nbytes for tensor in self._weights.values()}
        return sum(unique.values())

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
        if not 1 <= budget <= self._plan.context:
            raise Refused(
                f"{budget} positions were asked for; the model's context is {self._plan.context}"
            )
        self._sessions[session] = SessionCache(part, budget, self._part(part))

    @torch.inference_mode()
    def run(self, step: StageStep) -> StageResult:
        """Run one pass.

        Raises:
            Refused: the step contradicts the Session, the Slice or the model, and the Session is
                as it was; or memory ran out or numbers overflowed, and the Session is closed.
        """
        session = self._session(step.session)
        rows = checked_rows(step, session, self._plan, self._contract)
        started = time.perf_counter()
        done = False
        try:
            output = session.module.forward(
                rows, step.position, session.cache, want_logits=step.want_token
            )
            session.length += rows.shape[0]
            result = self._result(step, output, session.length, started)
            done = True
        except (MemoryError, RuntimeError) as error:
            raise Refused(f"the pass failed, the session was closed: {error}") from error
        finally:
            # A pass that stopped half-way leaves layers with different rows.
            if not done:
                self.close(step.session)
        return result

    def crop(self, session: SessionId, length: int) -> None:
        """Forget the Session's positions from `length` on.

        Raises:
            Refused: it has fewer, or they cannot be brought back.
        """
        self._session(session).crop(length)

    def close(self, session: SessionId) -> None:
        """Free the Session's cache; unknown ids are ignored."""
        self._sessions.pop(session, None)

    def _session(self, session: SessionId) -> SessionCache:
        found = self._sessions.get(session)
        if found is None:
            raise Refused("no such session is open here; open it first")
        return found

    def _part(self, part: Slice) -> PartModule:
        """The module of a part: kept for the next Session, but not without bound."""
        found = self._parts.get(part)
        if found is None:
            others = [known for known in self._parts if known != self._slice]
            if len(others) >= MAX_KEPT_PARTS:
                del self._parts[others[0]]
            module = self._plan.build(part, DTYPES[self._contract])
            found = self._parts[part] = PartModule(self._plan, part, self._weights, module)
        return found

    def _result(
        self, step: StageStep, output: torch.Tensor | None, drawn_at: int, started: float
    ) -> StageResult:
        hidden = token = None
        if output is not None and step.want_token:
            token = sample(output.numpy(), step.sampling, drawn_at)
        elif output is not None:
            hidden = to_wire(output, self._contract)
        return StageResult(hidden, token, time.perf_counter() - started)
