"""What is told of an answer: stages that were lost meanwhile, and what there was when it broke."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from diffuse_core import wiring
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.cli import run
from diffuse_core.cli.answer import print_losses
from diffuse_core.domain.decoding import DecodingParams
from diffuse_core.domain.messages import Hop
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import (
    Finished,
    GenerateEvent,
    RouteChosen,
    RouteStep,
    TextDelta,
    Timings,
    Usage,
)
from diffuse_core.errors import StagesLost
from diffuse_core.services.generation import Generation
from diffuse_core.services.run import ClientRun, StageBlamed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

ASK = ["query", "--model", "m", "--prompt", "hi"]
ROUTE = (
    RouteStep("ab" * 32, Slice(0, 4), "direct"),
    RouteStep("cd" * 32, Slice(4, 8), "relay"),
)
LOST = StageBlamed(Hop(b"\x50" * 32, (), Slice(4, 8)), "it sent (odd) things; \x1b[2J", "said")
KEPT = "stage failed. Tokens shown so far are kept; ask again"


def went_on() -> str:
    """What a generation itself says after a loss."""
    generation = Generation(
        cast("Any", None), cast("Any", None), SystemClock(), (1,), DecodingParams(max_tokens=1)
    )
    generation._run = ClientRun(cast("Any", None), [Hop(b"\x3c" * 32, (), Slice(0, 8))])
    return generation._how_it_went_on(LOST, generation._clock.monotonic())


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


def test_a_loss_is_one_quiet_line(say: Callable) -> None:
    early = str(LOST)
    code, out, err = say([*BEGUN, finished(early, went_on())])
    assert (code, out) == (0, "Hello\n")
    assert err == "(stage 50505050 was lost; went on with 3c3c3c3c after 0.0 s)\n"


def test_an_answer_without_losses_is_told_of_by_nothing(say: Callable) -> None:
    assert say([*BEGUN, finished(str(LOST))]) == (0, "Hello\n", "")


def test_timings_tell_all_events_and_who_is_relayed(say: Callable) -> None:
    code, out, err = say([*BEGUN, finished(str(LOST), went_on())], "--timings")
    assert (code, out) == (0, "Hello\n")
    assert f"{ROUTE[0].slice} on abababab → {ROUTE[1].slice} on cdcdcdcd (relay)\n" in err
    assert "event stage 50505050 (layers " in err
    assert "went on with 3c3c3c3c" in err
    assert "\x1b" not in err
    assert "(stage" not in err


def test_what_others_said_cannot_command_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_losses(finished("stage 12 (layers 1) was lost (x); went on with \x1b[2J after"))
    assert "\x1b" not in capsys.readouterr().err


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
