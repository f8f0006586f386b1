"""Steps with guessed tokens: drawn is what is drawn without, and wrong guesses leave no trace."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from diffuse_core.domain.slices import Slice
from diffuse_core.errors import Refused
from diffuse_core.model_ports import StageResult, StageStep
from tests.adapters.executor.lean.models import (
    CONTRACTS,
    LAYERS,
    PAIRS,
    VOCAB,
    all_equal,
    lean_cut,
    lean_executor,
    tables,
)
from tests.adapters.executor.stages import run_one
from tests.greedy import GREEDY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from diffuse_core.adapters.executor.stage_executor import StageExecutor
    from diffuse_core.domain.decoding import Drawn

WHOLE = Slice(0, LAYERS)
PROMPT = (3, 1, 4, 1, 5, 9, 2, 6, 5)
WINDOW = 3
LENGTH = 18


class Recorder:
    """Draws the likeliest token, and keeps what it was drawn from, by position."""

    def __init__(self) -> None:
        self.logits: dict[int, NDArray[np.float32]] = {}

    def choose(
        self, logits: NDArray[np.float32], position: int, drafts: Sequence[int]
    ) -> tuple[Drawn, ...]:
        assert logits.shape == (1 + len(drafts), VOCAB)
        assert logits.dtype == "float32"
        drawn = GREEDY.choose(logits, position, drafts)
        for at in range(len(drawn)):
            self.logits[position + at] = logits[at].copy()
        return drawn


class Route:
    """One session over the stages of a cut model."""

    def __init__(self, executors: Sequence[StageExecutor], session: bytes) -> None:
        self.executors = executors
        self.session = session
        self.recorder = Recorder()
        for executor in executors:
            executor.close(session)
            executor.open(session, executor.slice, 96)

    def step(self, tokens: Sequence[int], position: int, **more: object) -> list[int]:
        fed: dict[str, object] = {"tokens": tuple(tokens)}
        for executor in self.executors:
            chooser = self.recorder if executor is self.executors[-1] else None
            common = {"session": self.session, "part": executor.slice, "position": position}
            result = run_one(executor, StageStep(**common, **fed, chooser=chooser, **more))
            fed = {"hidden": result.hidden}
        return [drawn.token for drawn in result.drawn]

    def single(self, count: int) -> list[int]:
        """The prompt, and tokens drawn one by one."""
        drawn = self.step(PROMPT, 0)
        while len(drawn) < count:
            drawn += self.step(drawn[-1:], len(PROMPT) + len(drawn) - 1, alone=True)
        return drawn

    def lengths(self) -> list[int]:
        return [executor._sessions[self.session].cache.length for executor in self.executors]

    def filled(self) -> list[torch.Tensor]:
        """Keys and values of all stages, as far as the last one has them."""
        least = self.lengths()[-1]
        caches = [executor._sessions[self.session].cache for executor in self.executors]
        return [table[:, :least] for cache in caches for table in tables(cache)]


@pytest.mark.parametrize(("name", "contract"), PAIRS)
def test_guesses_that_are_right_up_to_any_place_change_nothing(name: str, contract: str) -> None:
    for borders in ((0, LAYERS), (0, 2, LAYERS)):
        plain = Route(lean_cut(name, contract, *borders), b"p" * 16)
        wanted = plain.single(LENGTH)
        guessed = Route(plain.executors, b"g" * 16)
        drawn = guessed.step(PROMPT, 0)
        right = 0
        while len(drawn) < LENGTH - WINDOW:
            own = wanted[len(drawn) : len(drawn) + WINDOW]
            drafts = tuple((t + (i >= right)) % VOCAB for i, t in enumerate(own))
            position = len(PROMPT) + len(drawn) - 1
            found = guessed.step((drawn[-1], *drafts), position, alone=True, drafts=drafts)
            assert len(found) == right + 1
            drawn += found
            # The last stage forgets at once; the others when the next rows come.
            ahead = position + 1 + WINDOW
            after = [ahead] * (len(guessed.executors) - 1) + [position + len(found)]
            assert guessed.lengths() == after
            right = (right + 1) % (WINDOW + 1)
        assert drawn == wanted[: len(drawn)]
        for position, logits in guessed.recorder.logits.items():
            assert (logits == plain.recorder.logits[position]).all(), position
        both = zip(guessed.filled(), plain.filled(), strict=True)
        assert all(torch.equal(one, other[:, : one.shape[1]]) for one, other in both)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_replay_in_groups_ends_where_single_tokens_ended(contract: str) -> None:
    plain = Route([lean_executor("smollm3", contract)], b"p" * 16)
    wanted = plain.single(LENGTH)
    again = Route(plain.executors, b"a" * 16)
    again.step(PROMPT, 0)
    executor = again.executors[0]
    fed, at = wanted[:-1], 0
    while at < len(fed):
        group = fed[at : at + 9]
        work = executor.start(
            StageStep(
                session=again.session,
                part=WHOLE,
                position=len(PROMPT) + at,
                tokens=tuple(group),
                alone=True,
                chooser=again.recorder if at + 9 >= len(fed) else None,
            )
        )
        result = None
        while result is None:
            result = work.advance(0.0)
        assert isinstance(result, StageResult)
        at += 9
    assert [drawn.token for drawn in result.drawn] == wanted[-1:]
    assert all_equal(again.filled(), plain.filled())


def rows_of(route: Route, tokens: Sequence[int], position: int, **more: object) -> StageStep:
    return StageStep(
        session=route.session, part=WHOLE, position=position, tokens=tuple(tokens), **more
    )


def test_a_step_at_an_earlier_position_takes_back_what_came_after() -> None:
    route = Route([lean_executor("mistral", "bf16")], b"r" * 16)
    wanted = route.single(12)
    for position in (len(PROMPT) + 6, len(PROMPT), len(PROMPT) + 3):
        known = [*PROMPT, *wanted]
        for at in range(position, len(PROMPT) + 8):
            assert route.step(known[at : at + 1], at, alone=True) == known[at + 1 : at + 2]
    assert route.step(PROMPT, 0) == wanted[:1]
    assert route.lengths() == [len(PROMPT)]


def test_a_refused_step_takes_nothing_back() -> None:
    executor = lean_executor("llama", "fp32")
    route = Route([executor], b"n" * 16)
    route.single(4)
    before, length = route.filled(), route.lengths()
    wrong = (
        rows_of(route, (VOCAB,), 2),
        rows_of(route, (1,) * 200, 2),
        rows_of(route, (1,) * (executor.rows_alone + 1), 2, alone=True),
        rows_of(route, (1, 2), 2, alone=True, drafts=(2, 3)),
        rows_of(route, (1, 2, 3), 2, drafts=(2, 3)),
        rows_of(route, (1,), -1),
        rows_of(route, (1,), length[0] + 1),
    )
    for step in wrong:
        with pytest.raises(Refused):
            run_one(executor, step)
        assert route.lengths() == length
        assert all_equal(route.filled(), before)


class Failing:
    def choose(self, *_: object) -> tuple[Drawn, ...]:
        raise Refused("the model gave logits that are not finite")


def test_what_cannot_be_drawn_from_closes_the_session() -> None:
    executor = lean_executor("llama", "fp32")
    route = Route([executor], b"f" * 16)
    step = rows_of(route, (1, 2), 0, alone=True, drafts=(2,), chooser=Failing())
    with pytest.raises(Refused, match="not finite") as found:
        run_one(executor, step)
    assert found.value.reason == "lost"
    with pytest.raises(Refused, match="no such session"):
        run_one(executor, rows_of(route, (1,), 0))


def resident() -> int:
    """Bytes of this process in memory."""
    figures = Path("/proc/self/statm").read_text(encoding="ascii")
    return int(figures.split()[1]) * mmap.PAGESIZE


def cropped(route: Route, count: int) -> Iterator[None]:
    for number in range(count):
        drafts = (number % VOCAB, 7, 8)
        route.recorder.logits.clear()
        yield route.step((number % 50, *drafts), len(PROMPT), alone=True, drafts=drafts)


@pytest.mark.slow
def test_taking_back_thousands_of_times_takes_no_memory() -> None:
    route = Route([lean_executor("qwen3", "int4")], b"m" * 16)
    route.step(PROMPT, 0)
    for _ in cropped(route, 1000):
        pass
    before = resident()
    for _ in cropped(route, 3000):
        pass
    assert resident() - before < 2 * 2**20
