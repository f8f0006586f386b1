"""The judges of a run can fail: each is shown what must not be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from diffuse_core.domain.view import Telemetry
from tests.chaos.judge import (
    LAG_S,
    MIB,
    grows,
    is_late,
    lag_limit,
    left_over,
    piled_up,
    said_in_log,
    slope,
)
from tests.chaos.ledger import AFTER_A_FAULT_S, CANARY, Answered, Ledger, fault_of
from tests.chaos.load import PLAIN, Load
from tests.chaos.questions import Question
from tests.e2e.lives import Life

if TYPE_CHECKING:
    from tests.chaos.load_plan import Ask

RIGHT = (5, 6, 7, 8)
QUIET = Telemetry(
    cpu_percent=0,
    cpu_count=2,
    memory_total=2**34,
    memory_available=2**33,
    process_rss=200 * MIB,
    uptime_s=100,
    open_files=20,
    tasks=30,
)


def answered(*tokens: int, **given: object) -> Answered:
    return Answered("client", tokens, RIGHT, 0.0, 1.0, **given)


@pytest.mark.parametrize(
    "answer",
    [
        answered(5, 6, 7, 8),
        answered(5, 6, left=True),
        answered(left=True),
        answered(5, 6, 7, code=7),
        answered(code=4),
    ],
)
def test_a_right_answer_or_a_part_of_it_is_well(answer: Answered) -> None:
    assert not fault_of(answer)


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (answered(5, 6, 9, 8), "wrong token at 2"),
        (answered(5, 9, left=True), "wrong token at 1"),
        (answered(5, 6, 7, 8, 9), "wrong token at 4"),
        (answered(9, code=7), "wrong token at 0"),
        (answered(5, 6, 7), "ended well after 3 of 4"),
        (answered(5, code=1, error="boom"), "undocumented exit code 1: boom"),
    ],
)
def test_a_wrong_or_cut_answer_is_found(answer: Answered, what: str) -> None:
    assert what in fault_of(answer)


def test_an_error_is_a_violation_only_where_nothing_was_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ledger = Ledger(seed=7)
    ledger.begin("kill host-1")
    ledger.note(answered(code=7))
    ledger.end("kill host-1")
    assert not ledger.violations
    ledger.last_fault = -AFTER_A_FAULT_S - 1
    ledger.note(answered(code=6))
    assert not ledger.violations
    ledger.say("what happened before")
    ledger.note(answered(code=7))
    assert len(ledger.violations) == 1
    said = capsys.readouterr().out
    assert "seed 7" in said
    assert "| " in said
    assert "what happened before" in said


class Silent:
    """A client whose answers never end, or that fails of itself."""

    name = "silent"

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    async def ask(self, ask: Ask, question: Question) -> list[Answered]:
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()
        return []

    async def close(self) -> None:
        pass


class NoAnswers:
    """Right answers of which there are none."""

    def right(self, _question: Question, _count: int) -> tuple[int, ...]:
        return RIGHT


@pytest.mark.parametrize(
    ("client", "what"),
    [(Silent(), "no end within"), (Silent(RuntimeError("boom")), "RuntimeError: boom")],
)
async def test_a_call_without_an_end_or_with_another_error_is_found(
    client: Silent, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.chaos.load.DEADLINE_S", 0.01)
    ledger = Ledger(seed=1)
    load = Load([client], NoAnswers(), ledger, 1)
    await load.one(client, PLAIN, Question(0, 1, None, "w1", (1,)))
    assert len(ledger.violations) == 1
    assert what in ledger.violations[0]


def test_what_is_left_of_a_session_is_found() -> None:
    assert not left_over("host-1", QUIET)
    assert "1 sessions" in left_over("host-1", msgspec.structs.replace(QUIET, sessions=1))
    assert "4096 bytes" in left_over("host-1", msgspec.structs.replace(QUIET, kv_used=4096))


def test_files_and_tasks_that_pile_up_are_found() -> None:
    more = msgspec.structs.replace(QUIET, open_files=90, tasks=30)
    assert not piled_up("host-1", QUIET, QUIET, 9)
    (told,) = piled_up("host-1", QUIET, more, 9)
    assert "90 open files" in told
    (told,) = piled_up("host-1", QUIET, msgspec.structs.replace(QUIET, tasks=500), 9)
    assert "500 tasks" in told
    assert piled_up("host-1", None, msgspec.structs.replace(QUIET, tasks=500), 9)


def life_of(sizes: list[float], lag: float = 0.001, seconds: int = 600) -> Life:
    life = Life("host-1", "ab" * 32, "127.0.0.1:1", 1, 0.0)
    for at in range(seconds):
        told = msgspec.structs.replace(
            QUIET, process_rss=int(sizes[at] * MIB), loop_lag_p99_s=lag, loop_lag_max_s=lag
        )
        life.samples.append((float(at), told))
    return life


def test_memory_that_grows_without_an_end_is_found() -> None:
    steady = [300.0 + (at % 7) / 10 for at in range(600)]
    stepped = [300.0 + 20 * (at > 400) for at in range(600)]
    leaking = [300.0 + 4 * at / 60 for at in range(600)]
    leap = [300.0 + 200 * (at > 400) for at in range(600)]
    assert not grows(life_of(steady))
    assert not grows(life_of(stepped))
    assert "grows by 4" in grows(life_of(leaking))
    assert "grew by 200 MiB" in grows(life_of(leap))
    # A short life tells nothing.
    assert not grows(life_of(leaking, seconds=300))
    assert slope([(float(at), size) for at, size in enumerate(leaking)]) == pytest.approx(4.0)
    assert slope([(1.0, 1.0)]) is None


def test_a_late_loop_is_found_unless_the_machine_or_a_stop_is_at_fault() -> None:
    late = life_of([300.0] * 600, lag=2 * LAG_S)
    assert "late by 600 ms" in is_late(late, lambda _: lag_limit(0.0, 1.0))
    assert not is_late(late, lambda _: lag_limit(LAG_S, 0.0))
    assert not is_late(late, lambda _: lag_limit(0.0, 5.0))
    late.pauses.append((0.0, 600.0))
    assert not is_late(late, lambda _: lag_limit(0.0, 0.0))
    assert not is_late(life_of([300.0] * 600), lambda _: lag_limit(0.0, 0.0))


def test_tracebacks_and_prompts_in_logs_are_found() -> None:
    assert not said_in_log("host-1", "12:00:00 INFO ready")
    assert "of host-1" in said_in_log("host-1", "x\nTraceback (most recent call last)")[0]
    assert said_in_log("host-1", f"DEBUG {CANARY} w1 w2")
