"""An answer that streams to a terminal cannot command it; in a pipe it is what was said."""

from __future__ import annotations

import io
import logging
import sys
from typing import TYPE_CHECKING, cast

import pytest

from diffuse_core.cli.answer import stream_answer
from diffuse_core.cli.common import set_logging
from diffuse_core.domain.view import (
    Finished,
    GenerateEvent,
    GenerateRequest,
    TextDelta,
    Timings,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from diffuse_core.services.client import ClientService

SAID = "a\x1b]0;title\x07b\nc"


class Screen(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


class Sayer:
    """A client whose last stage says what it likes."""

    async def generate(self, _request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        yield TextDelta(SAID)
        usage = Usage(prompt_tokens=1, completion_tokens=1)
        timings = Timings(ttft_s=0.1, total_s=0.1, tokens_per_s=1.0)
        yield Finished(finish_reason="stop", usage=usage, timings=timings, route=())


@pytest.mark.parametrize(
    ("terminal", "shown"), [(True, "a␛]0;title␇b\nc"), (False, SAID)], ids=["terminal", "pipe"]
)
async def test_only_a_terminal_is_spared(
    terminal: bool, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(terminal)
    monkeypatch.setattr(sys, "stdout", screen)
    client = cast("ClientService", Sayer())
    answer = await stream_answer(client, GenerateRequest(model="m", raw="x"))
    assert screen.getvalue() == shown
    assert answer.text == SAID


def test_log_lines_cannot_command_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(terminal=True)
    root, core = logging.getLogger(), logging.getLogger("diffuse_core")
    before = root.handlers[:], root.level, core.level
    monkeypatch.setattr(sys, "stderr", screen)
    try:
        set_logging("info", "text")
        logging.getLogger("diffuse_core.test").info("%s", "\x1b[2Jgone")
    finally:
        root.handlers[:], level, core.level = before
        root.setLevel(level)
    assert screen.getvalue().endswith("␛[2Jgone\n")
