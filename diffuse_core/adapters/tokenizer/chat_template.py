"""A model's chat template, run in a process of its own that can be limited and killed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import IO, TYPE_CHECKING

from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from diffuse_core.domain.tool_formats import ToolsName

    Value = Mapping[str, object]

MAX_MESSAGES = 1024
MAX_CHARS = 4 * 2**20
"""Of what is written in a chat and its tools, and of what becomes of it."""
MAX_REPLY = 16 * MAX_CHARS
"""Bytes; JSON writes a character as at most twelve."""
ANSWER_S = 10.0
"""Longer than the process gives itself, by far: this also covers its start."""

_PROGRAM = Path(__file__).with_name("template_child.py")


class ChatTemplate:
    """Renders chats with one template. Calls block; they may come from several threads.

    The process starts ahead of the first chat and serves those that follow. It ends when the
    template is dropped and when this process ends, however that happens.
    """

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        """`special` are token texts by the name the template uses: `bos_token`, `eos_token`."""
        setup = {"path": sys.path, "template": source, "special": dict(special)}
        self._setup = json.dumps(setup).encode() + b"\n"
        self._lock = threading.Lock()
        self._process: _Process | None = None
        with contextlib.suppress(OSError):  # Tried again, and told, when there is a chat.
            self._process = _Process(self._setup)

    def render(
        self, messages: Sequence[Value], tools: Sequence[Value] = (), name: ToolsName = "tools"
    ) -> str:
        """The chat as one text, with the generation prompt; see chat_values for the values.

        The template gets the tools by that `name`.

        Raises:
            UsageError: the chat is too long, or the template refuses it or does not work.
        """
        if len(messages) > MAX_MESSAGES:
            raise UsageError(f"a chat may have {MAX_MESSAGES} messages, not {len(messages)}")
        chat = {"messages": messages, "tools": {"tools": None, name: list(tools) or None}}
        line = json.dumps(chat).encode() + b"\n"
        with self._lock:
            answer = self._ask(line)
        if answer is None:
            raise UsageError(
                "the model's chat template took too long or too much memory and was stopped; "
                "send the prompt as it is (--raw)"
            )
        if "text" not in answer:
            raise UsageError(
                f"the model's chat template refused the chat: {printable(answer['problem'])}"
            )
        return answer["text"]

    def _ask(self, line: bytes) -> dict[str, str] | None:
        try:
            process = self._process or _Process(self._setup)
        except OSError as error:
            raise UsageError(
                f"no process could be started for the model's chat template: {error}; "
                "free some memory"
            ) from error
        answer = process.ask(line)
        self._process = process if answer is not None else None
        return answer


class _Process:
    """The running process; it answers one line with one line."""

    def __init__(self, setup: bytes) -> None:
        self._popen = subprocess.Popen(  # noqa: S603 - our own interpreter and file
            [sys.executable, "-I", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl+C is for the parent.
        )
        assert self._popen.stdin is not None  # noqa: S101
        assert self._popen.stdout is not None  # noqa: S101
        self._input: IO[bytes] = self._popen.stdin
        self._output: IO[bytes] = self._popen.stdout
        self._end = weakref.finalize(self, _end, self._popen)
        self._send(setup)

    def ask(self, line: bytes) -> dict[str, str] | None:
        """The answer, or None when the process ended instead of giving one."""
        watch = threading.Timer(ANSWER_S, self._popen.kill)
        watch.start()
        try:
            self._send(line)
            reply = self._output.readline(MAX_REPLY)
        finally:
            watch.cancel()
        if not reply.endswith(b"\n"):
            self._end()
            return None
        answer: dict[str, str] = json.loads(reply)
        return answer

    def _send(self, line: bytes) -> None:
        # A process that died shows by giving no answer.
        with contextlib.suppress(BrokenPipeError, OSError):
            self._input.write(line)
            self._input.flush()


def _end(popen: subprocess.Popen[bytes]) -> None:
    popen.kill()
    for pipe in (popen.stdin, popen.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
    popen.wait()


def printable(text: str) -> str:
    """Foreign text that may be shown: without control characters, not too long."""
    return "".join(c if c.isprintable() else " " for c in text[:300]).strip()
