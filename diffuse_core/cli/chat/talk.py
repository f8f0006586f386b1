"""A chat: lines are read, and questions asked, until it is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.cli.chat.actions import Actions
from diffuse_core.cli.chat.asker import Asker, say
from diffuse_core.cli.chat.commands import Unknown, read
from diffuse_core.cli.chat.completing import Words
from diffuse_core.cli.chat.history import History
from diffuse_core.cli.chat.knobs import Knobs
from diffuse_core.cli.chat.lines import Interrupted, LineReader
from diffuse_core.cli.common import Signals, find_bootstrap
from diffuse_core.cli.model_choice import name_on_network, only_model
from diffuse_core.cli.terminal import typed_ahead
from diffuse_core.domain.plain_text import clean, clean_line
from diffuse_core.domain.selection import find_model
from diffuse_core.errors import EXIT_INTERRUPTED, DiffuseError, ModelUnknown
from diffuse_core.settings import state_dir

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from diffuse_core.cli.chat.lines import Reader
    from diffuse_core.ports import Answers

STOP_TOLD_S = 1.0
"""A stop that takes longer is worth a word."""
LEAVE_S = 5.0
"""For an answer to be stopped by a signal that ends the program."""
PROMPT = "> "
HINT = "(Ctrl+C once more or Ctrl+D leaves)"
STOPPING = "(stopping on every host; Ctrl+C does not wait for it)"


class Left(Exception):  # noqa: N818
    """A signal ends the program."""


def talk(given: dict[str, Any], command: click.Command) -> int:
    """Talk until it is left; the exit code.

    Raises:
        DiffuseError: there is no network, or no model to be asked, to begin with.
    """
    return asyncio.run(_talk(given, command))


async def _talk(given: dict[str, Any], command: click.Command) -> int:
    from diffuse_core.wiring import keep_network

    signals = Signals()
    chat = Chat(signals)
    where = find_bootstrap(given["bootstrap"], given["state_dir"])

    async def whole() -> None:
        async with keep_network(where, given["network"], given["layers"]) as network:
            await chat.run(given, command, network)

    main = asyncio.ensure_future(whole())
    chat.end = main.cancel
    signals.watch(chat.on_signal)
    try:
        await main
    except asyncio.CancelledError:
        return signals.code or EXIT_INTERRUPTED
    return chat.code


class Chat:
    """The loop, and what signals do to it.

    Ctrl+C stops what is being done, twice no matter whether that has ended; other signals end
    the program.
    """

    def __init__(self, signals: Signals) -> None:
        self.code = 0
        self.end: Any = None
        self._signals = signals
        self._interactive = sys.stdin.isatty()
        self._leaving = False
        self._warned = False
        self._reader: Reader | None = None
        self._asker: Asker | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._enough = asyncio.Event()
        self._told_later: asyncio.TimerHandle | None = None
        self._behind: set[asyncio.Task[None]] = set()
        """Stops that nobody waits for any more."""

    def on_signal(self) -> None:
        """Act on a signal that came; what it was is in the Signals."""
        interrupted = self._signals.code == EXIT_INTERRUPTED and self._interactive
        if not interrupted:
            self._leaving = True
            asyncio.get_running_loop().call_later(LEAVE_S, self._enough.set)
        if self._reader is None:
            self.end()
        elif self._task is None:
            self._reader.interrupt(Interrupted() if interrupted else Left())
        elif not self._stopping:
            self._stopping = True
            if self._asker is not None:
                self._asker.stop()
            self._task.cancel()
            loop = asyncio.get_running_loop()
            self._told_later = loop.call_later(STOP_TOLD_S, say, STOPPING)
        else:
            self._enough.set()

    async def run(self, given: dict[str, Any], command: click.Command, network: Answers) -> None:
        """Read and answer; `code` tells how it ended."""
        clock = SystemClock()
        asker = self._asker = Asker(given, network, clock)
        knobs = Knobs(command, given)
        actions = Actions(asker, knobs, clock)
        await _choose(asker, banner=self._interactive)
        self._reader = _reader(given, asker, knobs)
        # Also between a prompt and an answer a key must be what it was: Enter sends.
        quiet = typed_ahead() if self._reader.keys else contextlib.nullcontext()
        try:
            with quiet:
                await self._loop(asker, actions, self._reader)
        finally:
            for task in self._behind:
                task.cancel()
        if self._leaving:
            self.code = self._signals.code

    async def _loop(self, asker: Asker, actions: Actions, reader: Reader) -> None:
        while not self._leaving:
            draft, actions.draft = actions.draft, ""
            try:
                text = await self._typed(reader, draft)
            except (EOFError, Left, OSError):
                # A signal says more than the end of input that comes with it.
                await asyncio.sleep(0)
                return
            what = read(text)
            if isinstance(what, Unknown):
                say(what.sentence)
            elif isinstance(what, str):
                if what:
                    await self._do(asker.ask(what))
            elif what.name == "quit":
                return
            else:
                await self._do(actions.run(what))

    async def _typed(self, reader: Reader, draft: str) -> str:
        """The next text, nothing where there is none.

        Raises:
            EOFError, Left, OSError: there are no more.
        """
        try:
            text = await reader.read(draft)
        except Interrupted as interrupted:
            if self._warned and not interrupted.typed:
                self.code = EXIT_INTERRUPTED
                raise Left from None
            self._warned = not interrupted.typed
            if self._warned:
                say(HINT)
            return ""
        except DiffuseError as error:
            self._tell(error)
            return ""
        self._warned = False
        return text.strip()

    async def _do(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it so that Ctrl+C stops it; what fails is told."""
        self._stopping = False
        self._enough.clear()
        task = self._task = asyncio.ensure_future(work)
        enough = asyncio.ensure_future(self._enough.wait())
        try:
            with typed_ahead():
                await asyncio.wait({task, enough}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            enough.cancel()
            self._task = None
            if self._told_later is not None:
                self._told_later.cancel()
        if not task.done():
            self._behind.add(task)
            task.add_done_callback(self._forget)
            say("(the hosts may go on with it for some seconds)")
        elif self._stopping:
            self._forget(task)
            say("(stopped)")
        elif (error := task.exception()) is not None:
            self._told(error)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._behind.discard(task)
        if not task.cancelled():
            task.exception()

    def _told(self, error: BaseException) -> None:
        if isinstance(error, TimeoutError):
            error = DiffuseError("the disk did not answer in time; try again")
        if not isinstance(error, DiffuseError):
            raise error
        self._tell(error)

    def _tell(self, error: DiffuseError) -> None:
        click.echo(f"diffuse: {clean(str(error))}", err=True)
        if not self._interactive:
            self.code = error.exit_code


async def _choose(asker: Asker, *, banner: bool) -> None:
    """Find out which model is asked, and say so."""
    given, view = asker.given, await asker.look()
    if given["model"] is None:
        given["model"] = only_model(view)
    else:
        # A path is read for it.
        given["model"] = await asyncio.to_thread(name_on_network, given["model"])
    if not banner:
        return
    try:
        model = find_model(view, given["model"])
    except ModelUnknown:
        if given["private"]:
            raise
        say(f"(nobody holds {clean_line(given['model'])} now; /models lists what there is)")
        return
    hosts = f"{model.hosts} host{'' if model.hosts == 1 else 's'}"
    say(f"{clean_line(model.id)} on {hosts}, {model.state}. Try /help")


def _reader(given: dict[str, Any], asker: Asker, knobs: Knobs) -> Reader:
    """Where questions come from: keys, or lines where there are none."""
    if not sys.stdin.isatty():
        return LineReader(sys.stdin.fileno())
    dumb = os.environ.get("TERM", "").lower() in ("", "dumb", "unknown") and os.name == "posix"
    if dumb or not (sys.stdout.isatty() or sys.stderr.isatty()):
        return LineReader(sys.stdin.fileno(), PROMPT)
    from diffuse_core.cli.chat.keys import KeyReader

    def models() -> list[str]:
        return [] if asker.view is None else [model.id for model in asker.view.models]

    history = History(None if given["no_history"] else state_dir(given["state_dir"]))
    if history.problem:
        say(f"({clean(history.problem)})")
    return KeyReader(history, Words(models, knobs.names).complete)
