"""Where a query's question comes from, which model it asks, and what it tells beside."""

from __future__ import annotations

import json
import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from chat_fakes import ROUTE, Network, finished, model

from diffuse_core import wiring
from diffuse_core.cli import run
from diffuse_core.domain.view import NetworkView, RouteChosen, TextDelta
from diffuse_core.errors import StagesLost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from diffuse_core.domain.view import GenerateEvent, GenerateRequest


class Picture:
    def __init__(self, network: Network) -> None:
        self._network = network

    def view(self) -> NetworkView:
        return NetworkView(taken_at=0.0, me=None, nodes=(), models=self._network.models)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    found = Network()

    @asynccontextmanager
    async def observe(*_: object) -> AsyncIterator[tuple[Picture, Network]]:
        yield Picture(found), found

    monkeypatch.setattr(wiring, "observe", observe)
    return found


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run `query` with a pipe at stdin, which stays open if nothing is to come through it."""

    def query(text: str | None, *options: str) -> int:
        reading, writing = os.pipe()
        if text is not None:
            os.write(writing, text.encode("utf-8", "surrogateescape"))
            os.close(writing)
        try:
            with os.fdopen(reading, encoding="utf-8") as stdin:
                monkeypatch.setattr(sys, "stdin", stdin)
                return run(["query", *options])
        finally:
            if text is None:
                os.close(writing)

    return query


@pytest.mark.parametrize(
    ("text", "options", "asked"),
    [
        ("from a pipe", (), "from a pipe"),
        ("from a pipe", ("--prompt", "-"), "from a pipe"),
        ("a file\n", ("--prompt", "sum up", "--stdin"), "sum up\n\na file\n"),
        ("not for us", ("--prompt", "each of a list"), "each of a list"),
        (None, ("--prompt", "nothing is waited for"), "nothing is waited for"),
    ],
)
def test_the_question(
    network: Network,
    piped: Callable[..., int],
    text: str | None,
    options: tuple[str, ...],
    asked: str,
) -> None:
    assert piped(text, *options) == 0
    assert network.asked == [[asked]]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", (), "the prompt is empty"),
        ("\udcff\udcfe", (), "stdin is no text in utf-8"),
        ("x" * 40_000, ("--prompt", "p" * 999_000, "--stdin"), "longer than 1000000"),
    ],
)
def test_what_is_no_question(
    network: Network,
    piped: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    text: str,
    options: tuple[str, ...],
    words: str,
) -> None:
    assert piped(text, *options) == 2
    assert words in capsys.readouterr().err
    assert network.asked == []


def test_on_a_terminal_a_pipe_that_is_not_read_is_told(
    network: Network,
    piped: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert piped("a file", "--prompt", "sum up") == 0
    assert "--stdin sends it along" in capsys.readouterr().err
    for silent in ("", None):
        assert piped(silent, "--prompt", "sum up") == 0
        assert capsys.readouterr().err == ""
    assert len(network.asked) == 3


def test_the_only_servable_model_is_asked(
    network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    network.models = (model("half", servable=False), model("whole"))
    assert run(["query", "--prompt", "hi", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "whole"
    network.models = (model("b"), model("a"))
    assert run(["query", "--prompt", "hi"]) == 2
    assert "There are a, b: give --model NAME" in capsys.readouterr().err


def test_an_answer_that_broke_off_has_its_times(
    network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    async def script(_: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        yield RouteChosen(ROUTE, 3)
        yield TextDelta("a", (1,))
        yield TextDelta("b", (2,))
        raise StagesLost("gone")

    network.script = script
    assert run(["query", "--prompt", "hi", "--json"]) == 7
    times = json.loads(capsys.readouterr().out)["timings"]
    assert 0 <= times["ttft_s"] <= times["total_s"] < 10
    assert times["tokens_per_s"] >= 0


def test_headings_come_with_the_answers_and_audits_last(
    network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    async def script(_: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        # Layers of one's own would be loaded here, with a bar for each step.
        assert "---" not in capsys.readouterr().out
        yield RouteChosen(ROUTE, 3)
        yield TextDelta("a", (1,))
        yield finished()

    network.script = script
    assert run(["query", "--prompt", "hi", "--n", "1"]) == 0
    assert run(["query", "--prompt", "hi", "--n", "2", "--temperature", "1", "--seed", "5"]) == 0
    assert capsys.readouterr().out.startswith("--- 1 of 2, seed 5 ---\na\n--- 2 of 2, seed ")
