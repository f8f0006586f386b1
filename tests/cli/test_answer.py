"""What is told of an answer: stages that were lost meanwhile, and what there was when it broke."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from diffuse_core import wiring
from diffuse_core.cli import run
from diffuse_core.domain.plain_text import clean
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import (
    Finished,
    GenerateEvent,
    Healed,
    RouteChosen,
    RouteStep,
    StageTiming,
    TextDelta,
    Timings,
    Usage,
    Waiting,
)
from diffuse_core.errors import StagesLost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

ASK = ["query", "--model", "m", "--prompt", "hi"]
ROUTE = (
    RouteStep("ab" * 32, Slice(0, 4), "direct"),
    RouteStep("cd" * 32, Slice(4, 8), "relay"),
)
KEPT = "stage failed. Tokens shown so far are kept; ask again"
NEW = (RouteStep("ab" * 32, Slice(0, 4)), RouteStep("ef" * 32, Slice(4, 8)))
WHY = "it \x1b[2J ended"
WORDS = f"stage cdcdcdcd (layers 4:8) was lost ({WHY}); went on with efefefef after 0.4 s"
HEALED = Healed(lost=ROUTE[1], why=WHY, replaced_by=NEW[1:], seconds=0.41, route=NEW)
FORGED = Healed(
    lost=RouteStep("\x1b[2J", Slice(4, 8)), why="", replaced_by=NEW[1:], seconds=1.0, route=NEW
)


def finished(*events: str) -> Finished:
    timings = Timings(ttft_s=0.1, total_s=0.1, tokens_per_s=1.0)
    usage = Usage(prompt_tokens=3, completion_tokens=2)
    return Finished(finish_reason="stop", usage=usage, timings=timings, route=ROUTE, events=events)


@pytest.fixture
def say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run `query` with a client that says these things; exit code, stdout, stderr."""

    def command(script: list[GenerateEvent | Exception], *options: str) -> tuple[int, str, str]:
        class Client:
            async def generate(self, _request: object) -> AsyncIterator[GenerateEvent]:
                for event in script:
                    if isinstance(event, Exception):
                        raise event
                    yield event

        @asynccontextmanager
        async def observe(*_: object) -> AsyncIterator[tuple[None, Client]]:
            yield None, Client()

        monkeypatch.setattr(wiring, "observe", observe)
        code = run([*ASK, *options])
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


BEGUN = [RouteChosen(ROUTE, 3), TextDelta("Hel", (7,)), TextDelta("lo", (8,))]


def test_a_loss_is_one_quiet_line_after_the_answer(say: Callable) -> None:
    code, out, err = say([*BEGUN[:2], HEALED, BEGUN[2], finished("early")])
    assert (code, out) == (0, "Hello\n")
    assert err == f"({clean(WORDS)})\n"


def test_what_is_waited_for_is_said_at_once(say: Callable) -> None:
    waiting = Waiting(lost=FORGED.lost, why="", seconds=10.0)
    code, _out, err = say([*BEGUN[:2], waiting, HEALED, BEGUN[2], finished("early")])
    assert code == 0
    first, second = err.splitlines()
    assert first.endswith(
        " (layers 4:8) was lost; waiting up to 10 s for a host that takes these layers)"
    )
    assert "\x1b" not in err
    assert second == f"({clean(WORDS)})"


def test_an_answer_without_losses_is_told_of_by_nothing(say: Callable) -> None:
    assert say([*BEGUN, finished("a route that was given up")]) == (0, "Hello\n", "")


def test_a_loss_is_told_also_when_the_answer_broke_off(say: Callable) -> None:
    code, out, err = say([*BEGUN, HEALED, StagesLost(KEPT)])
    assert (code, out) == (7, "Hello\n")
    assert err == f"({clean(WORDS)})\ndiffuse: {KEPT}\n"


def test_timings_tell_all_events_and_who_is_relayed(say: Callable) -> None:
    code, out, err = say([*BEGUN, HEALED, finished("a \x1b[2J", "b")], "--timings")
    assert (code, out) == (0, "Hello\n")
    assert f"{ROUTE[0].slice} on abababab → {ROUTE[1].slice} on cdcdcdcd (relay)\n" in err
    assert "event a " in err
    assert "event b\n" in err
    assert "\x1b" not in err
    assert "(stage" not in err


def test_timings_show_where_tokens_spent_their_time(say: Callable) -> None:
    stages = (StageTiming(1.0, 0.5, 9.0), StageTiming(2.0, 0.25, 8.0))
    timed = TextDelta("!", (9,), stages=stages)
    guessed = TextDelta("?", (10,), place=1)
    script = [*BEGUN, timed, guessed, finished()]
    assert "queue" in say(script, "--timings")[2]
    assert "queue" not in say(script)[2]
    told = json.loads(say(script, "--timings", "--json")[1])
    *_, last = told["token_timings"]
    assert last["tokens"] == 2
    assert last["stages"][0] == {"wire_ms": 1.0, "queue_ms": 0.5, "compute_ms": 9.0}
    assert sum(one["tokens"] for one in told["token_timings"]) == len(told["token_ids"])
    assert "token_timings" not in json.loads(say(script, "--json")[1])


def test_what_others_said_cannot_command_a_terminal(say: Callable) -> None:
    assert "\x1b" not in say([*BEGUN, FORGED, finished()])[2]


def test_what_there_was_of_an_answer_is_kept_for_scripts(say: Callable) -> None:
    code, out, err = say([*BEGUN, StagesLost(KEPT)], "--json")
    assert code == 7
    assert err == f"diffuse: {KEPT}\n"
    told = json.loads(out)
    assert (told["text"], told["token_ids"]) == ("Hello", [7, 8])
    assert told["finish_reason"] == "error"
    assert told["usage"] == {"prompt_tokens": 3, "completion_tokens": 2}
    assert [step["via"] for step in told["route"]] == ["direct", "relay"]
    assert told["events"] == []
    assert told["error"] == KEPT


def test_of_a_broken_answer_the_last_route_and_what_happened_are_told(say: Callable) -> None:
    told = json.loads(say([*BEGUN, HEALED, StagesLost(KEPT)], "--json")[1])
    assert [step["node"][:2] for step in told["route"]] == ["ab", "ef"]
    assert told["events"] == [WORDS]
    assert told["healed"] == [
        {
            "lost": {"node": "cd" * 32, "slice": [4, 8], "via": "relay"},
            "why": WHY,
            "replaced_by": [{"node": "ef" * 32, "slice": [4, 8], "via": "direct"}],
            "seconds": 0.41,
        }
    ]


def test_before_the_first_token_there_is_nothing_to_keep(say: Callable) -> None:
    assert say([StagesLost(KEPT)], "--json")[:2] == (7, "")
    assert say([BEGUN[0], StagesLost(KEPT)], "--json")[:2] == (7, "")


def test_a_whole_answer_for_scripts_has_the_same_fields(say: Callable) -> None:
    whole = json.loads(say([*BEGUN, finished("e")], "--json")[1])
    broken = json.loads(say([*BEGUN, StagesLost(KEPT)], "--json")[1])
    assert (whole["text"], whole["token_ids"], whole["events"]) == ("Hello", [7, 8], ["e"])
    assert broken.keys() - whole.keys() == {"error"}
    assert whole.keys() <= broken.keys()


@pytest.mark.parametrize(
    ("script", "shown"),
    [(BEGUN, "Hello\n"), ([*BEGUN, TextDelta("\n", (9,))], "Hello\n"), (BEGUN[:1], "")],
)
def test_an_error_has_a_line_of_its_own(say: Callable, script: list, shown: str) -> None:
    assert say([*script, StagesLost(KEPT)]) == (7, shown, f"diffuse: {KEPT}\n")
