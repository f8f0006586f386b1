"""Steps come from strangers: each wrong one is refused, and the Session goes on as it was."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.slices import Slice
from diffuse_core.errors import Refused
from diffuse_core.model_ports import StageStep, Tensor
from tests.adapters.executor.stages import run_one
from tests.greedy import GREEDY, last_token

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from diffuse_core.adapters.executor.stage_executor import StageExecutor

SESSION = b"s" * 16
WIDTH = 32


def hidden(rows: int = 2, value: float = 0.5, **changes: object) -> Tensor:
    numbers = [value] * (rows * WIDTH)
    fields = {
        "dtype": "fp32",
        "shape": (rows, WIDTH),
        "data": struct.pack(f"<{len(numbers)}f", *numbers),
    }
    return Tensor(**{**fields, **changes})


def step(part: Slice, **changes: object) -> StageStep:
    return StageStep(**{"session": SESSION, "part": part, "position": 0, **changes})


@pytest.fixture
def first(make_model: Callable, load: Callable) -> StageExecutor:
    """Holds 0:3 of 6, with a session of at most 10 positions that has 2 rows."""
    executor = load(make_model("llama")[0], (0, 3))[0]
    executor.open(SESSION, Slice(0, 3), 10)
    run_one(executor, step(Slice(0, 3), tokens=(1, 2)))
    return executor


@pytest.fixture
def last(make_model: Callable, load: Callable) -> StageExecutor:
    """Holds 3:6 of 6, with a session of at most 10 positions that has no rows."""
    executor = load(make_model("llama")[0], (3, 6))[0]
    executor.open(SESSION, Slice(3, 6), 10)
    return executor


GOOD_FIRST = {"position": 2, "tokens": (5,)}
WRONG_FIRST = {
    "outside the model's vocabulary": {"position": 2, "tokens": (5, 101)},
    "is outside": {"position": 2, "tokens": (-1,)},
    "has no tokens": {"position": 2, "tokens": ()},
    "takes token ids": {"position": 2, "hidden": hidden()},
    "takes token ids, not": {"position": 2, "hidden": hidden(), "tokens": (5,)},
    "starts at position 3": {"position": 3, "tokens": (5,)},
    "starts at position -1": {"position": -1, "tokens": (5,)},
    "pass the session's budget": {"position": 2, "tokens": (5,) * 9},
    "the step says 0:2": {"position": 2, "tokens": (5,), "part": Slice(0, 2)},
    "does 1 of them at once": {"position": 2, "tokens": (5, 6), "alone": True},
    "guessed tokens need as many": {"position": 2, "tokens": (5,), "alone": True, "drafts": (3,)},
    "1 guessed tokens": {"position": 2, "tokens": (5, 6), "drafts": (3,)},
    "has 2 rows": {"position": 4, "tokens": (5,)},
    "not the last stage": {"position": 2, "tokens": (5,), "chooser": GREEDY},
    "no such session": {"position": 2, "tokens": (5,), "session": b"x" * 16},
}


@pytest.mark.parametrize("message", WRONG_FIRST)
def test_a_wrong_step_is_refused_and_changes_nothing(first: StageExecutor, message: str) -> None:
    other = b"o" * 16
    first.open(other, Slice(0, 3), 10)
    run_one(first, step(Slice(0, 3), session=other, tokens=(1, 2)))
    with pytest.raises(Refused, match=message):
        run_one(first, step(**{"part": Slice(0, 3), **WRONG_FIRST[message]}))
    again = run_one(first, step(Slice(0, 3), **GOOD_FIRST)).hidden
    wanted = run_one(first, step(Slice(0, 3), session=other, **GOOD_FIRST)).hidden
    assert bytes(again.data) == bytes(wanted.data)


WRONG_LAST = {
    "takes hidden states": {"tokens": (5,)},
    "takes hidden states, not token": {"tokens": (5,), "hidden": hidden()},
    "hidden states, not": {},
    "are bf16": {"hidden": hidden(dtype="bf16")},
    "this model's are": {"hidden": hidden(shape=(4, 16))},
    "shape": {"hidden": hidden(shape=(1, 2, 32))},
    r"shape \(0, 32\)": {"hidden": hidden(shape=(0, 32), data=b"")},
    r"shape \(-2, 32\)": {"hidden": hidden(shape=(-2, 32))},
    "bytes instead of": {"hidden": hidden(data=b"\0" * 255)},
    "bytes instead of 2560": {"hidden": hidden(shape=(20, 32))},
    "pass the session's budget": {"hidden": hidden(rows=11)},
    "NaN or infinity": {"hidden": hidden(value=float("nan"))},
    "NaN or infinity;": {"hidden": hidden(value=float("-inf"))},
}


@pytest.mark.parametrize("message", WRONG_LAST)
def test_wrong_hidden_states_are_refused_for_that_session_only(
    last: StageExecutor, message: str
) -> None:
    with pytest.raises(Refused, match=message):
        run_one(last, step(Slice(3, 6), chooser=GREEDY, **WRONG_LAST[message]))
    assert run_one(last, step(Slice(3, 6), chooser=GREEDY, hidden=hidden())).drawn


def weights(executor: StageExecutor) -> dict[str, torch.Tensor]:
    return executor._engine._weights


def test_numbers_that_overflow_close_the_session(last: StageExecutor) -> None:
    last.open(b"o" * 16, Slice(3, 6), 10)
    head = weights(last)["lm_head.weight"]
    kept = head[0].clone()
    head[0] = float("inf")
    with pytest.raises(Refused, match=r"this stage computed NaN.*3:6"):
        run_one(last, step(Slice(3, 6), chooser=GREEDY, hidden=hidden()))
    head[0] = kept
    with pytest.raises(Refused, match="no such session"):
        run_one(last, step(Slice(3, 6), position=2, hidden=hidden()))
    other = step(Slice(3, 6), session=b"o" * 16, chooser=GREEDY, hidden=hidden())
    assert last_token(run_one(last, other)) is not None


def test_hidden_states_that_are_no_numbers_do_not_leave(first: StageExecutor) -> None:
    embedding = weights(first)["model.embed_tokens.weight"]
    embedding[7] = float("nan")
    other = b"o" * 16
    first.open(other, Slice(0, 3), 10)
    sick, well = first.run(
        [
            step(Slice(0, 3), position=2, tokens=(7,)),
            step(Slice(0, 3), session=other, tokens=(5,)),
        ]
    )
    assert isinstance(sick, Refused)
    assert "this stage computed NaN" in str(sick)
    assert well.hidden.shape == (1, WIDTH)
    with pytest.raises(Refused, match="no such session"):
        run_one(first, step(Slice(0, 3), position=3, tokens=(5,)))
    assert run_one(first, step(Slice(0, 3), session=other, position=1, tokens=(5,))).hidden


@pytest.mark.parametrize(
    ("part", "budget", "message"),
    [
        (Slice(2, 4), 10, "not held here"),
        (Slice(3, 6), 10, "not held here"),
        (Slice(0, 3), 0, "positions were asked for"),
        (Slice(0, 3), -5, "positions were asked for"),
        (Slice(0, 3), 129, "context is 128"),
    ],
)
def test_a_session_that_cannot_run_here_is_not_opened(
    first: StageExecutor, part: Slice, budget: int, message: str
) -> None:
    with pytest.raises(Refused, match=message):
        first.open(b"n" * 16, part, budget)


def test_a_session_is_opened_once(first: StageExecutor) -> None:
    with pytest.raises(Refused, match="already"):
        first.open(SESSION, Slice(0, 3), 10)


def test_closing_frees_the_cache_and_forgives_unknown_ids(first: StageExecutor) -> None:
    first.close(b"u" * 16)
    first.close(SESSION)
    first.close(SESSION)
    first.open(SESSION, Slice(0, 3), 10)
    assert run_one(first, step(Slice(0, 3), tokens=(1,))).hidden.shape == (1, WIDTH)


@pytest.mark.parametrize("length", [-1, 3])
def test_a_crop_beyond_what_is_held_is_refused(first: StageExecutor, length: int) -> None:
    with pytest.raises(Refused, match="has 2 rows"):
        first._sessions[SESSION].cache.crop(length)


def test_steps_take_back_only_rows_that_a_window_did_not_let_go(
    make_model: Callable, load: Callable, chain: type
) -> None:
    executors = load(make_model("mistral", sliding_window=8)[0], (0, 3, 6))
    generation = chain(executors)
    generation.step(range(7))
    generation.back_to(5)
    generation.step(range(90))
    generation.back_to(40)
    generation.step([1, 2])
    generation.back_to(10)
    with pytest.raises(Refused, match="open a new session"):
        generation.step([1, 2])
    generation.back_to(42)
    assert last_token(generation.step([1, 2])) is not None
    generation.back_to(0)
    assert last_token(generation.step([1, 2])) is not None


def test_many_different_parts_do_not_pile_up(make_model: Callable, load: Callable) -> None:
    executor = load(make_model("llama")[0], (0, 6))[0]
    parts = [Slice(a, b) for a in range(6) for b in range(a + 1, 7)]
    for number, part in enumerate(parts):
        executor.open(number.to_bytes(16, "big"), part, 4)
        executor.close(number.to_bytes(16, "big"))
    assert len(executor._engine._parts) <= 9
    assert executor.slice in executor._engine._parts


def test_read_only_bytes_from_the_network_are_taken(last: StageExecutor) -> None:
    data = memoryview(bytes(hidden().data)).toreadonly()
    one = run_one(last, step(Slice(3, 6), hidden=hidden(data=data), chooser=GREEDY))
    assert isinstance(last_token(one), int)
    assert one.seconds >= 0


def test_a_step_at_an_earlier_position_takes_back_what_came_after(first: StageExecutor) -> None:
    part = Slice(0, 3)
    wanted = [run_one(first, step(part, position=2, tokens=(at,))).hidden for at in (5, 6)]
    again = run_one(first, step(part, position=2, tokens=(5,), alone=True)).hidden
    assert bytes(again.data) == bytes(wanted[0].data) != bytes(wanted[1].data)


def test_a_step_before_what_a_window_let_go_is_refused(
    make_model: Callable, load: Callable, chain: type
) -> None:
    executors = load(make_model("mistral", sliding_window=8)[0], (0, 3, 6))
    generation = chain(executors)
    generation.step(range(90))
    early = step(Slice(0, 3), session=generation.session, position=10, tokens=(1,))
    with pytest.raises(Refused, match="sliding attention window"):
        run_one(executors[0], early)
    assert generation.step([1, 2]).drawn
