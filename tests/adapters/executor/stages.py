"""A way to run a prompt through slices, in the test's own process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.errors import Refused
from diffuse_core.model_ports import StageStep
from tests.greedy import GREEDY, last_token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.adapters.executor.stage_executor import StageExecutor
    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import StageResult, Tensor


def run_one(executor: StageExecutor, step: StageStep) -> StageResult:
    """Run one step alone; raise what it was refused with."""
    (outcome,) = executor.run([step])
    if isinstance(outcome, Refused):
        raise outcome
    return outcome


class Chain:
    """The stages of one generation, in the test's own process."""

    def __init__(
        self,
        executors: Sequence[StageExecutor],
        session: bytes = b"s" * 16,
        parts: Sequence[Slice] | None = None,
        budget: int = 128,
    ) -> None:
        self.executors = executors
        self.session = session
        self.parts = parts or [executor.slice for executor in executors]
        self.position = 0
        for executor, part in zip(executors, self.parts, strict=True):
            executor.open(session, part, budget)

    def step(
        self, tokens: Sequence[int], hidden: Tensor | None = None, *, want_token: bool = True
    ) -> StageResult:
        """Run tokens (or, when the first stage is no first slice, hidden states) through all."""
        result = None
        for index, (executor, part) in enumerate(zip(self.executors, self.parts, strict=True)):
            result = run_one(
                executor,
                StageStep(
                    session=self.session,
                    part=part,
                    position=self.position,
                    tokens=None if hidden else tuple(tokens),
                    hidden=hidden,
                    chooser=GREEDY if want_token and index == len(self.parts) - 1 else None,
                ),
            )
            hidden = result.hidden
        self.position += len(tokens)
        return result

    def generate(self, prompt: Sequence[int], count: int) -> list[int]:
        """Greedy: the prompt in one pass, then token by token."""
        drawn = [last_token(self.step(prompt))]
        while len(drawn) < count:
            drawn.append(last_token(self.step(drawn[-1:])))
        return drawn

    def back_to(self, position: int) -> None:
        """The next step starts there, and takes back what came after."""
        self.position = position

    def close(self) -> None:
        for executor in self.executors:
            executor.close(self.session)
