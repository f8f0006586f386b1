"""The prompt on a terminal: editing, history, completion; prompt_toolkit does it.

It draws with plain characters only, asks the terminal nothing (an answer that comes late over ssh
would look like something typed), and has no menu that needs room below.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.output import ColorDepth, create_output
from prompt_toolkit.shortcuts import CompleteStyle

from diffuse_core.cli.chat.lines import Interrupted
from diffuse_core.cli.query import MAX_PROMPT_CHARS
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prompt_toolkit.document import Document
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyPressEvent
    from prompt_toolkit.output import Output

    from diffuse_core.cli.chat.history import History

PROMPT = "> "
MORE = ". "
"""Before further lines of a message."""


class KeyReader:
    """Reads messages from a terminal.

    Args:
        history: What was typed before, and takes what is.
        complete: Ways to complete the text before the cursor, as whole texts.
        source: Where keys come from; the terminal at stdin by default.
        output: Where it draws; the terminal at stdout, else at stderr.
    """

    def __init__(
        self,
        history: History,
        complete: Callable[[str], Iterable[str]],
        source: Input | None = None,
        output: Output | None = None,
    ) -> None:
        if output is None:
            output = create_output(sys.stdout if sys.stdout.isatty() else sys.stderr)
        # Only that of a POSIX terminal asks where the cursor is.
        if hasattr(output, "enable_cpr"):
            output.enable_cpr = False
        self._history = history
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=MORE,
            history=InMemoryHistory(history.entries),
            completer=_Completer(complete),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            enable_open_in_editor=False,
            enable_suspend=True,
            key_bindings=_keys(),
            color_depth=ColorDepth.DEPTH_1_BIT,
            include_default_pygments_style=False,
            input=source,
            output=output,
        )

    keys = True

    async def read(self, default: str = "") -> str:
        """The next message; it is kept for the Up key."""
        text = await self._session.prompt_async(
            default=default, handle_sigint=False, set_exception_handler=False
        )
        if len(text) > MAX_PROMPT_CHARS:
            raise UsageError(f"that is longer than {MAX_PROMPT_CHARS} characters; shorten it")
        self._history.add(text)
        return text

    def interrupt(self, error: Exception) -> None:
        """Have `read` raise this, if it waits."""
        app = self._session.app
        if app.is_running and not app.is_done:
            app.exit(exception=error)


class _Completer(Completer):
    def __init__(self, complete: Callable[[str], Iterable[str]]) -> None:
        self._complete = complete

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        before = document.text_before_cursor
        if not before.startswith("/") or "\n" in before:
            return
        for text in self._complete(before):
            word = before.rfind(" ") + 1
            yield Completion(text[word:], start_position=word - len(before))


def _keys() -> KeyBindings:
    """Enter sends, also in the middle of several lines; Alt+Enter and Ctrl+J begin a new one."""
    keys = KeyBindings()
    # Else they are keys of the search.
    typing = has_focus(DEFAULT_BUFFER)

    @keys.add("enter", filter=typing)
    def _send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=typing)
    @keys.add("c-j", filter=typing)
    def _line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @keys.add("c-c", filter=typing)
    def _clear(event: KeyPressEvent) -> None:
        event.app.exit(exception=Interrupted(typed=bool(event.current_buffer.text)))

    return keys
