"""A chat whose lines come from a pipe: what is asked, told and kept, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from chat_fakes import ROUTE, Network, finished, model

from diffuse_core import wiring
from diffuse_core.cli import run
from diffuse_core.cli.chat.lines import LineReader
from diffuse_core.domain.alternatives import alternative_seed
from diffuse_core.domain.view import RouteChosen, TextDelta
from diffuse_core.errors import PromptTooLong, StagesLost, Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from diffuse_core.domain.view import GenerateEvent, GenerateRequest

Said = tuple[int | str | None, str, str]


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Network:
    found = Network()
    monkeypatch.setattr(wiring, "keep_network", found.keep)
    monkeypatch.setenv("DIFFUSE_STATE_DIR", str(tmp_path / "state"))
    return found


@pytest.fixture
def chat(
    network: Network, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Run `chat` with these lines at stdin; exit code, stdout, stderr."""

    def talk(lines: str, *options: str) -> Said:
        reading, writing = os.pipe()
        os.write(writing, lines.encode())
        os.close(writing)
        code: int | str | None
        with os.fdopen(reading) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            try:
                code = run(["chat", *options])
            except SystemExit as ended:
                code = ended.code
        said = capsys.readouterr()
        return code, said.out, said.err

    assert network.models
    return talk


def test_each_line_is_a_question_with_what_was_said_before(
    chat: Callable[..., Said], network: Network
) -> None:
    assert chat("one\n\n  two  \r\nthree", "--system", "brief") == (
        0,
        "answer 1\nanswer 2\nanswer 3\n",
        "",
    )
    assert network.asked[2] == ["brief", "one", "answer 1", "two", "answer 2", "three"]


def test_without_lines_nothing_is_asked(chat: Callable[..., Said], network: Network) -> None:
    assert chat("") == (0, "", "")
    assert network.requests == []


def test_the_exit_code_is_that_of_the_last_failure(
    chat: Callable[..., Said], network: Network
) -> None:
    network.failing = [None, StagesLost("gone: ask\x1b[2J again"), None]
    code, out, err = chat("one\ntwo\nthree\n")
    assert (code, out) == (7, "answer 1\nanswer 3\n")
    assert err == "diffuse: gone: ask␛[2J again\n"
    # What failed is no part of the conversation.
    assert network.asked[2] == ["one", "answer 1", "three"]


def test_without_a_network_it_does_not_begin(chat: Callable[..., Said], network: Network) -> None:
    network.unreachable = Unreachable("nobody there")
    assert chat("one\n") == (5, "", "diffuse: nobody there\n")


def test_the_only_model_is_asked(chat: Callable[..., Said], network: Network) -> None:
    network.models = (model("broken", servable=False), model("whole"))
    assert chat("one\n")[0] == 0
    assert network.requests[0].model == "whole"
    network.models = (model("a"), model("b"))
    code, _, err = chat("one\n")
    assert (code, "There are a, b: give --model NAME" in err) == (2, True)
    network.models = (model("broken", servable=False),)
    code, _, err = chat("one\n")
    assert (code, "layers 2:4 of 4 are held by no live node" in err) == (4, True)
    network.models = ()
    assert chat("one\n")[0] == 3


def test_a_line_of_two_slashes_is_a_question(chat: Callable[..., Said], network: Network) -> None:
    _, _, err = chat("//etc\n/moddel x\n/nonsense\n/undo all\n/quit\nnever\n")
    assert network.asked == [["/etc"]]
    assert err.splitlines() == [
        "there is no command /moddel; did you mean /model?",
        "there is no command /nonsense; /help lists them, // begins a question with a /",
        "/undo takes no argument",
    ]


def test_a_chat_goes_on_with_the_first_of_several_answers(
    chat: Callable[..., Said], network: Network
) -> None:
    seeds = [alternative_seed(7, index) for index in range(2)]

    async def script(request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        yield RouteChosen(ROUTE, 3)
        yield TextDelta(f"of {request.sampling.seed}", (1,))
        if request.sampling.seed == seeds[1]:
            raise StagesLost("a stage died")
        yield finished()

    network.script = script
    code, out, err = chat("one\ntwo\n", "--seed", "7", "--n", "2", "--temperature", "1")
    assert code == 7
    assert out.startswith(f"--- 1 of 2, seed 7 ---\nof 7\n--- 2 of 2, seed {seeds[1]} ---\n")
    assert network.asked[-1] == ["one", "of 7", "two"]
    assert "diffuse: a stage died" in err


def test_what_has_no_room_is_left_out_and_told(
    chat: Callable[..., Said], network: Network
) -> None:
    network.models = (model(context=64),)
    long = "x" * 60
    _, _, err = chat(f"{long}\n{long}\nlast\n")
    assert network.asked[1] == [long]
    assert network.asked[2] == [long, "answer 2", "last"]
    assert err.splitlines() == [
        "(the oldest turn does not fit any more: the model is not told of it)"
    ]


def test_a_prompt_that_is_too_long_after_all_is_asked_with_less(
    chat: Callable[..., Said], network: Network
) -> None:
    network.failing = [None, None, PromptTooLong("too long"), PromptTooLong("too long")]
    code, out, err = chat("one\ntwo\nthree\n")
    assert (code, out.splitlines()[-1]) == (0, "answer 5")
    assert network.asked[-2:] == [["two", "answer 2", "three"], ["three"]]
    assert "the oldest 2 turns do not fit" in err
    network.failing = [PromptTooLong("too long")]
    assert chat("one\n")[0] == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_what_reads_a_pipe(
    chat: Callable[..., Said], network: Network, number: int, code: int
) -> None:
    async def script(_: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        yield RouteChosen(ROUTE, 3)
        yield TextDelta("Hel", (1,))
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()

    network.script = script
    ended, out, _ = chat("one\ntwo\n")
    assert (ended, out) == (code, "Hel\n")
    assert (len(network.asked), network.closed) == (1, 1)


def test_tokens_times_and_route_of_the_last_answer_can_be_seen(
    chat: Callable[..., Said], network: Network
) -> None:
    code, _, err = chat("one\n/stats\n/route\n")
    assert code == 0
    assert err.splitlines() == [
        "first token 0.10 s, 20.0 tokens/s, 3 prompt and 2 new tokens, ended by stop",
        "0:2 on abababab",
        "2:4 on cdcdcdcd (relay)",
    ]


async def test_a_line_without_an_end_takes_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\n" + b"x" * 9_000_000 + b"\ntwo\n" + b"y" * 5_000_000)
    with file.open("rb") as lines:
        reader = LineReader(lines.fileno())
        assert await reader.read() == "one"
        with pytest.raises(UsageError, match="longer than 4000000 bytes"):
            await reader.read()
        assert await reader.read() == "two"
        with pytest.raises(UsageError):
            await reader.read()
        with pytest.raises(EOFError):
            await reader.read()
        assert len(reader._buffer) == 0
