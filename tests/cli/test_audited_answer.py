"""What is told of audits, and of an answer that is cut short by a signal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from diffuse_core import wiring
from diffuse_core.cli import run
from diffuse_core.cli.answer import MAY_BE_WRONG
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import (
    Audited,
    Comparison,
    Finished,
    RouteChosen,
    RouteStep,
    TextDelta,
    Timings,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from diffuse_core.domain.view import GenerateEvent

ASK = ["query", "--model", "m", "--prompt", "hi", "--seed", "7"]
ROUTE = (RouteStep("ab" * 32, Slice(0, 4)), RouteStep("cd" * 32, Slice(4, 8)))
ONE, TWO = "11" * 32, "22" * 32
BEGUN = [RouteChosen(ROUTE, 3), TextDelta("Hel", (7,)), TextDelta("lo", (8,))]
AGREES = Audited(
    node="ab" * 32,
    slice=Slice(0, 4),
    verdict="agrees",
    rows=4,
    auditors=(Comparison(auditor=ONE, agrees=True, difference=0.01),),
    tolerance=0.08,
    nats_tolerance=0.75,
)
LIES = Audited(
    node="cd" * 32,
    slice=Slice(4, 8),
    verdict="differs",
    rows=4,
    auditors=(
        Comparison(auditor=ONE, agrees=False, difference=0.5, nats=2.0),
        Comparison(auditor=TWO, agrees=False, difference=0.52, nats=2.0),
    ),
    tolerance=0.08,
    nats_tolerance=0.75,
    decided_by=TWO,
    quarantined=("cd" * 32,),
)
TOLD = "audit: stage abababab (layers 0:4) agrees with 11111111\n"
WAITS = "(auditing 2 stages of this answer; Ctrl+C ends that)\n"


def finished(audits: int) -> Finished:
    return Finished(
        finish_reason="stop",
        usage=Usage(3, 2),
        timings=Timings(ttft_s=0.1, total_s=0.2, tokens_per_s=10.0),
        route=ROUTE,
        audits=audits,
    )


class Signalled:
    """In the place of an event: a signal comes, and nothing after it."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number


Say = "Callable[..., tuple[int | str | None, str, str]]"


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run `query` with a client that says these things; exit code, stdout, stderr."""

    def command(
        script: list[GenerateEvent | Signalled], *options: str
    ) -> tuple[int | str | None, str, str]:
        class Client:
            async def generate(self, _request: object) -> AsyncIterator[GenerateEvent]:
                for event in script:
                    if isinstance(event, Signalled):
                        os.kill(os.getpid(), event.number)
                        await asyncio.Event().wait()
                    yield event

            async def token_texts(self, *_: object) -> dict[int, str]:
                return {}

        @asynccontextmanager
        async def observe(*_: object) -> AsyncIterator[tuple[None, Client]]:
            yield None, Client()

        monkeypatch.setattr(wiring, "observe", observe)
        code: int | str | None
        try:
            code = run([*ASK, *options])
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


def test_audits_are_fields_for_scripts(say: Say) -> None:
    code, out, err = say([*BEGUN, finished(2), AGREES, LIES], "--json")
    assert (code, err) == (0, WAITS)
    told = json.loads(out)
    assert (told["model"], told["finish_reason"]) == ("m", "stop")
    first, second = told["audits"]
    assert first == {
        "node": "ab" * 32,
        "slice": [0, 4],
        "verdict": "agrees",
        "reason": "",
        "rows": 4,
        "auditors": [{"auditor": ONE, "agrees": True, "difference": 0.01, "nats": None}],
        "tolerance": 0.08,
        "nats_tolerance": 0.75,
        "decided_by": None,
        "quarantined": [],
        "doubtful": [],
    }
    assert (second["verdict"], second["decided_by"]) == ("differs", TWO)
    assert second["quarantined"] == ["cd" * 32]
    # In words only where somebody is to read them.
    (event,) = told["events"]
    assert "stage cdcdcdcd (layers 4:8) did not agree with two others" in event


def test_audits_are_lines_for_people_after_the_answer(say: Say) -> None:
    code, out, err = say([*BEGUN, finished(2), AGREES, LIES])
    assert (code, out) == (0, "Hello\n")
    assert err == (
        WAITS
        + TOLD
        + "audit: stage cdcdcdcd (layers 4:8) did not agree with two others, 11111111 "
        "and 22222222 (rows 0.52 apart, 0.08 passes); quarantined cdcdcdcd\n"
        f"({MAY_BE_WRONG})\n"
    )


def test_timings_do_not_wait_for_audits(say: Say) -> None:
    _, out, err = say([*BEGUN, finished(2), AGREES, LIES], "--timings")
    assert out == "Hello\n"
    assert err.index("first token 0.10 s") < err.index(WAITS) < err.index(TOLD)


def test_a_liar_found_on_the_way_is_told_at_once(say: Say) -> None:
    _, out, err = say([*BEGUN[:2], LIES, BEGUN[2], finished(0)])
    assert out == "Hello\n"
    assert err.startswith("(audit: stage cdcdcdcd (layers 4:8) did not agree")
    assert err.splitlines()[1] == f"({MAY_BE_WRONG}; Ctrl+C ends it)"
    assert "auditing" not in err


@pytest.mark.parametrize("options", [(), ("--timings",)])
def test_audits_can_be_cut_short(say: Say, options: tuple[str, ...]) -> None:
    script = [*BEGUN, finished(2), AGREES, Signalled(signal.SIGINT)]
    code, out, err = say(script, *options)
    assert (code, out) == (130, "Hello\n")
    assert err.endswith(WAITS + TOLD)
    code, out, _ = say(script, *options, "--json")
    told = json.loads(out)
    assert code == 130
    assert (told["text"], told["finish_reason"], len(told["audits"])) == ("Hello", "stop", 1)
    assert told["usage"] == {"prompt_tokens": 3, "completion_tokens": 2}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_there_was_is_printed_when_a_signal_ends_it(
    say: Say, number: signal.Signals, code: int
) -> None:
    ended, out, err = say([*BEGUN, Signalled(number)], "--json", "--logprobs", "1")
    assert (ended, err) == (code, "")
    told = json.loads(out)
    assert (told["text"], told["token_ids"]) == ("Hello", [7, 8])
    assert told["finish_reason"] == "cancelled"
    assert told["usage"] == {"prompt_tokens": 3, "completion_tokens": 2}
    assert [step["node"] for step in told["route"]] == ["ab" * 32, "cd" * 32]
    assert "error" not in told
    ended, out, err = say([*BEGUN, Signalled(number)])
    assert (ended, out, err) == (code, "Hello\n", "")


def test_a_signal_before_the_first_token_has_an_object_as_well(say: Say) -> None:
    code, out, _ = say([Signalled(signal.SIGINT)], "--json", "--n", "2", "--temperature", "1")
    told = json.loads(out)
    assert code == 130
    assert (told["text"], told["finish_reason"], told["route"]) == ("", "cancelled", [])
    assert [choice["finish_reason"] for choice in told["choices"]] == ["cancelled"] * 2
    assert say([Signalled(signal.SIGINT)])[:2] == (130, "")
