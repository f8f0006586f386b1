"""Several Sessions in one call, and passes that are run bit by bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from diffuse_core.adapters.executor.stage_executor import StageExecutor
from diffuse_core.adapters.executor.step_checks import Bounds
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import Refused
from diffuse_core.model_ports import StageResult, StageStep
from tests.adapters.executor.stages import run_one
from tests.greedy import GREEDY, last_token

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from diffuse_core.adapters.executor.engine import Rows

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16
WHOLE = Slice(0, 6)
PROMPTS = {A: (3, 1, 4), B: (1, 5), C: (9, 2, 6, 5, 3)}


def step(session: bytes, tokens: Sequence[int], position: int = 0, **more: object) -> StageStep:
    return StageStep(
        **{
            "session": session,
            "part": WHOLE,
            "position": position,
            "tokens": tuple(tokens),
            "chooser": GREEDY,
            **more,
        }
    )


@pytest.fixture
def executor(make_model: Callable, load: Callable) -> StageExecutor:
    executor = load(make_model("llama")[0], (0, 6))[0]
    for session in PROMPTS:
        executor.open(session, WHOLE, 64)
    return executor


@pytest.fixture
def alone(executor: StageExecutor) -> dict[bytes, int]:
    """The token that each prompt gives by itself."""
    found = {}
    for session, tokens in PROMPTS.items():
        found[session] = last_token(run_one(executor, step(session, tokens)))
        executor.close(session)
        executor.open(session, WHOLE, 64)
    assert len(set(found.values())) == 3
    return found


def test_each_session_gets_what_it_gets_alone_in_order(
    executor: StageExecutor, alone: dict[bytes, int]
) -> None:
    results = executor.run([step(session, PROMPTS[session]) for session in (C, A, B)])
    assert [last_token(result) for result in results] == [alone[C], alone[A], alone[B]]
    assert all(result.seconds > 0 for result in results)


def test_no_steps_give_no_outcomes(executor: StageExecutor) -> None:
    assert executor.run([]) == []


def test_a_wrong_step_harms_neither_the_others_nor_its_session(
    executor: StageExecutor, alone: dict[bytes, int]
) -> None:
    wrong = step(B, PROMPTS[B], position=7)
    first, refused, last = executor.run([step(A, PROMPTS[A]), wrong, step(C, PROMPTS[C])])
    assert (last_token(first), last_token(last)) == (alone[A], alone[C])
    assert isinstance(refused, Refused)
    assert "starts at position 7" in str(refused)
    assert last_token(run_one(executor, step(B, PROMPTS[B]))) == alone[B]


def test_the_second_step_of_a_session_in_one_call_is_refused(
    executor: StageExecutor, alone: dict[bytes, int]
) -> None:
    one, other = executor.run([step(A, PROMPTS[A]), step(A, PROMPTS[A])])
    assert last_token(one) == alone[A]
    assert isinstance(other, Refused)
    assert other.reason == "busy"
    assert last_token(run_one(executor, step(A, [1], position=3))) is not None


def test_a_failure_in_one_row_closes_that_session_only(
    executor: StageExecutor, alone: dict[bytes, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = executor._sessions[B].cache
    forward = cache.module.forward

    def fail(rows: torch.Tensor, position: int, given: object, **more: object) -> object:
        # Half-way: the layers of the pass before have their rows already.
        output = forward(rows, position, given, **more)
        if given is cache.cache:
            raise RuntimeError("no memory for this row")
        return output

    monkeypatch.setattr(cache.module, "forward", fail)
    first, sick, last = executor.run([step(session, PROMPTS[session]) for session in (A, B, C)])
    assert (last_token(first), last_token(last)) == (alone[A], alone[C])
    assert isinstance(sick, Refused)
    assert "no memory for this row" in str(sick)
    with pytest.raises(Refused, match="no such session"):
        run_one(executor, step(B, [1], position=2))
    assert last_token(run_one(executor, step(A, [1], position=3))) is not None


def test_a_long_pass_gives_what_a_short_one_gives(
    executor: StageExecutor, alone: dict[bytes, int]
) -> None:
    outcome = executor.start(step(C, PROMPTS[C])).advance(10.0)
    assert isinstance(outcome, StageResult)
    assert last_token(outcome) == alone[C]
    assert outcome.seconds > 0
    assert last_token(run_one(executor, step(C, [1], position=5))) is not None


def test_a_wrong_long_pass_is_refused_at_once(executor: StageExecutor) -> None:
    with pytest.raises(Refused, match="starts at position 2"):
        executor.start(step(A, PROMPTS[A], position=2))
    assert last_token(run_one(executor, step(A, PROMPTS[A]))) is not None


class Slow:
    """An engine whose long passes take `pieces` bits, and whose numbers can be spoilt."""

    weight_bytes = 0
    rows_alone = 1

    def __init__(self) -> None:
        self.pieces = 3
        self.worked = 0
        self.ended = False
        self.output: torch.Tensor | Exception = torch.tensor([0.0, 2.0, 1.0])

    def open(self, part: Slice, budget: int) -> SlowCache:
        return SlowCache(part, budget)

    def together(self, batch: Sequence[Rows]) -> list[torch.Tensor | None]:
        for rows in batch:
            rows.cache.length += len(rows.inputs)
        return [self.output for _ in batch]

    def bit_by_bit(self, rows: Rows) -> Generator[None, None, torch.Tensor | None]:
        try:
            for _ in range(self.pieces):
                self.worked += 1
                yield
            if isinstance(self.output, Exception):
                raise self.output
            rows.cache.length += len(rows.inputs)
            return self.output
        finally:
            self.ended = True


class SlowCache:
    def __init__(self, part: Slice, budget: int) -> None:
        self.part, self.budget, self.length = part, budget, 0

    def crop(self, length: int) -> None:
        self.length = length


@pytest.fixture
def engine() -> Slow:
    return Slow()


@pytest.fixture
def slow(engine: Slow) -> StageExecutor:
    executor = StageExecutor(engine, WHOLE, Bounds(6, 8, 3, 64, "fp32"))
    for session in (A, B):
        executor.open(session, WHOLE, 64)
    return executor


def test_a_long_pass_works_until_its_time_is_used(slow: StageExecutor, engine: Slow) -> None:
    work = slow.start(step(A, [1, 2]))
    assert engine.worked == 0
    # With no time at all one bit is done nevertheless.
    assert [work.advance(0.0) for _ in range(3)] == [None] * 3
    assert engine.worked == 3
    outcome = work.advance(0.0)
    assert (last_token(outcome), outcome.hidden) == (1, None)
    assert outcome.seconds > 0
    assert last_token(run_one(slow, step(A, [1], position=2))) == 1


def test_a_session_in_a_long_pass_takes_no_other_step(slow: StageExecutor) -> None:
    work = slow.start(step(A, [1, 2]))
    work.advance(0.0)
    refused, other = slow.run([step(A, [1]), step(B, [1])])
    assert isinstance(refused, Refused)
    assert refused.reason == "busy"
    assert last_token(other) == 1
    with pytest.raises(Refused, match="long pass"):
        slow.start(step(A, [1]))
    assert last_token(work.advance(10.0)) == 1


def test_a_session_may_be_closed_in_the_middle_of_a_long_pass(
    slow: StageExecutor, engine: Slow
) -> None:
    work = slow.start(step(A, [1, 2]))
    work.advance(0.0)
    slow.close(A)
    assert engine.ended
    slow.open(A, WHOLE, 64)
    outcome = work.advance(1.0)
    assert isinstance(outcome, Refused)
    # What was opened under the same name since is another session.
    assert last_token(run_one(slow, step(A, [1]))) == 1


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (torch.tensor([0.0, float("nan"), 1.0]), "this stage computed NaN"),
        (RuntimeError("no memory left"), "no memory left"),
        (IndexError("beyond the table"), "beyond the table"),
    ],
)
def test_a_long_pass_that_fails_closes_its_session(
    slow: StageExecutor, engine: Slow, output: torch.Tensor | Exception, message: str
) -> None:
    engine.output = output
    outcome = slow.start(step(A, [1, 2])).advance(10.0)
    assert isinstance(outcome, Refused)
    assert message in str(outcome)
    with pytest.raises(Refused, match="no such session"):
        run_one(slow, step(A, [1], position=2))
    engine.output = torch.tensor([0.0, 2.0, 1.0])
    assert last_token(run_one(slow, step(B, [1]))) == 1
