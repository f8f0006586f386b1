"""The app: ties an Attachment to the screens. It draws nothing and computes nothing."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from diffuse_core.domain.plain_text import clean_line
from diffuse_core.errors import EXIT_INTERRUPTED, DiffuseError
from diffuse_tui.copies import Copies
from diffuse_tui.generations import CLOSE_S, Generations
from diffuse_tui.host_errands import HostErrands
from diffuse_tui.leaving import Signals, ask_about_answer, may_leave
from diffuse_tui.presenter.banner import Link, NodeEnded
from diffuse_tui.presenter.sound import sound
from diffuse_tui.remembered import Remembered
from diffuse_tui.screens.main import MainScreen
from diffuse_tui.screens.messages import EventsArrived, LinkChanged, ViewArrived
from diffuse_tui.terminal_title import GIVE_TITLE_BACK, KEEP_TITLE, name_terminal
from diffuse_tui.widgets.theme import DARK, NAMES, THEMES, theme_after

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
    from pathlib import Path, PurePath

    from textual.command import Provider
    from textual.driver import Driver

    from diffuse_core.domain.view import FeedUpdate
    from diffuse_core.ports import Attachment
    from diffuse_tui.archive.store import Archive
    from diffuse_tui.leaving import LeavingQuestion
    from diffuse_tui.presenter.hosting import Desk
    from diffuse_tui.screens.host import HostScreen
    from diffuse_tui.screens.palette import Command
    from diffuse_tui.widgets.chat_pane import ChatPane
    from diffuse_tui.widgets.copying import Copied

RETRY_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Waits between attempts to attach; the last one repeats."""

WARNED_S = 15.0
"""How long a warning that needs to be read stays."""

ASK_S = 2.0
"""How long the key that quits counts as pressed once."""


def _commands() -> type[Provider]:
    """The palette's commands, imported when it opens first."""
    from diffuse_tui.screens.palette import Commands

    return Commands


class DiffuseApp(App[None]):
    """The terminal app over one node.

    Args:
        attach: Reaches the node; called after the first paint and again whenever the tie breaks.
        model: Name or fingerprint to show; without it, the best to talk to.
        open_chat: Keep the chat open from the start, also while no model answers.
        title: What the top line says on the left.
        retry: Seconds between attempts to attach.
        replace: Called when a node is to be started in the place of one that ended.
        theme: Name of a theme; without it, the one used last.
        desk: Makes what starts and ends hosts here; without it the app cannot host.
        state: Where the app remembers how it was left; None to remember nothing.
        history: The file that keeps conversations, opened after the first paint; `:memory:` keeps
            them until the app ends, None not at all.
    """

    CSS_PATH: ClassVar[list[str | PurePath]] = [
        "diffuse.tcss",
        "answers.tcss",
        "chat.tcss",
        "host.tcss",
    ]
    ENABLE_COMMAND_PALETTE = True
    COMMANDS = {_commands}  # noqa: RUF012 - Textual's type
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", key_display="^Q", priority=True),
        Binding("ctrl+c", "interrupt", "Quit", show=False, system=True),
        Binding("r", "retry", "Reconnect", show=False),
        Binding("s", "start_node", "Start a node", show=False),
        Binding("ctrl+p", "command_palette", "Commands", show=False, priority=True),
        Binding("colon", "command_palette", "Commands", show=False),
        Binding("t", "next_theme", "Next theme", show=False),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False),
    ]

    def __init__(
        self,
        attach: Callable[[], Awaitable[Attachment]],
        *,
        model: str | None = None,
        open_chat: bool = False,
        title: str = "Diffuse",
        retry: Sequence[float] = RETRY_S,
        replace: Callable[[], None] = lambda: None,
        theme: str | None = None,
        desk: Callable[[], Desk] | None = None,
        state: Path | None = None,
        history: Path | str | None = None,
    ) -> None:
        # Textual's own way of going without colour sends greys; this way none is sent at all.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self._reach = attach
        self._main = MainScreen(title, model, open_chat=open_chat)
        self._retry = tuple(retry)
        self._retry_now = asyncio.Event()
        self._replace = replace
        self._ended = False
        self._attachment: Attachment | None = None
        self._history = history
        self.archive: Archive | None = None
        self._signals = Signals(self._leave, self._restore_terminal)
        self._generations = Generations(
            self, lambda: self._attachment, lambda: self._hosting.ending
        )
        self._hosting = HostErrands(self, desk, lambda: self._generations.busy)
        self._asked = ""
        self.leaving_questions: list[LeavingQuestion] = [self._answering, self._hosting.leaving]
        self._state = state
        self._copies = Copies(None if history == ":memory:" else state)
        self.last_words = ""
        """What is to be written to stderr once the terminal is given back: a defect's line."""
        self.title = title
        self.animation_level = "none"
        for known in THEMES:
            self.register_theme(known)
        self._remembered = Remembered(state)
        wanted = theme or self._remembered.text("theme")
        self._start_with(wanted if wanted in NAMES else DARK.name)
        self.command_sources: list[Callable[[], Iterable[Command]]] = [
            self._theme_commands,
            self._main.commands,
        ]
        """What the command palette offers besides the keys that work."""

    def get_default_screen(self) -> MainScreen:
        """The main screen is the only one that stays."""
        return self._main

    def get_driver_class(self) -> type[Driver]:
        """Textual's own for this terminal; one that stands more where there is one."""
        kind = super().get_driver_class()
        if kind.__name__ == "LinuxDriver":
            from diffuse_tui.terminal_driver import SteadyDriver

            return SteadyDriver
        return kind

    async def run_async(self, *given: Any, **named: Any) -> None:
        """Run until it is left."""
        try:
            await super().run_async(*given, **named)
        finally:
            self._signals.over()

    def on_mount(self) -> None:
        """Leave orderly when told to, so that the terminal is given back."""
        self._signals.take()
        self._write(KEEP_TITLE + name_terminal(self.title))

        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))

    def watch_title(self, title: str) -> None:
        """Name the product and the model in the terminal's own title, too."""
        self._write(name_terminal(title))

    def _write(self, sequence: str) -> None:
        if self._driver is not None and not self._driver.is_headless:
            self._driver.write(sequence)
            self._driver.flush()

    def _restore_terminal(self) -> None:
        self._hosting.abandon()
        if self._driver is not None:
            give_back = getattr(self._driver, "give_back", self._driver.stop_application_mode)
            give_back()

    def _fatal_error(self) -> None:
        """A defect: one clear line at the end, the rest in a file, without what was said."""
        from diffuse_tui.crash import keep

        if self._exception is not None:
            now = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
            self.last_words = keep(self._exception, self._state, now).line
        self._write(GIVE_TITLE_BACK)
        self.panic()

    def _leave(self, code: int) -> None:
        self.exit(return_code=code)

    def on_ready(self) -> None:
        """The first frame is on the screen: now reach for the node."""
        self.run_worker(self._follow(), group="feed", exclusive=True)
        self._open_archive()

    async def on_unmount(self) -> None:
        """Detach, within bounds; whoever started the app takes signals again."""
        self._write(GIVE_TITLE_BACK)
        await self._let_go()
        if self.archive is not None:
            self.archive.close()
        self._signals.give_back()

    # --- conversations ----------------------------------------------------------------------

    def _open_archive(self) -> None:
        """Whatever is the matter with the file, the app goes on, and says it once."""
        if self._history is None:
            return
        from diffuse_tui.archive.store import open_archive

        self.archive = open_archive(self._history)
        self.archive.on_trouble = self._warn
        if self.archive.notice:
            self._warn(self.archive.notice)
        self._main.use_archive(self.archive)

    def _warn(self, text: str) -> None:
        self.notify(clean_line(text), severity="warning", timeout=WARNED_S, markup=False)

    # --- the feed ---------------------------------------------------------------------------

    async def _follow(self) -> None:
        attempt = 0
        while True:
            self._retry_now.clear()
            if attempt == 0:
                self._tell(Link("connecting", "reaching for the node"))
            reason, fed = await self._feed()
            attempt = 1 if fed else attempt + 1
            wait = self._retry[min(attempt, len(self._retry)) - 1]
            advice = reason if self._ended else f"{reason} · retrying in {wait:g} s (r: now)"
            doing = self._hosting.doing
            self._tell(Link("connecting", doing) if doing else Link("disconnected", advice))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._retry_now.wait()

    async def _feed(self) -> tuple[str, bool]:
        """Attach and pass updates on until the tie breaks; why it did, and whether any came."""
        fed = self._ended = False
        try:
            self._attachment = await self._reach()
            async for update in self._attachment.updates():
                fed = True
                self._pass_on(update)
        except (DiffuseError, OSError, TimeoutError) as error:
            self._ended = isinstance(error, NodeEnded)
            return str(error) or type(error).__name__, fed
        finally:
            await self._let_go()
        return "the node closed the feed", fed

    def _pass_on(self, update: FeedUpdate) -> None:
        self._main.post_message(ViewArrived(sound(update.view), update.telemetry))
        if update.events:
            self._main.post_message(EventsArrived(update.events))

    def _tell(self, link: Link) -> None:
        self._main.post_message(LinkChanged(link))

    async def _let_go(self) -> None:
        attachment, self._attachment = self._attachment, None
        if attachment is not None:
            with suppress(DiffuseError, OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await attachment.close()

    def action_retry(self) -> None:
        """Do not wait for the next attempt."""
        self._retry_now.set()

    def action_start_node(self) -> None:
        """Start a node here in the place of one that ended; nothing while there is one."""
        if self._ended:
            self._replace()
            self._retry_now.set()

    # --- generations ------------------------------------------------------------------------

    def on_chat_pane_ask(self, message: ChatPane.Ask) -> None:
        """Run a generation."""
        self._generations.start(message)

    def on_chat_pane_stop(self) -> None:
        """Cancel it."""
        self._generations.stop()

    # --- hosting ----------------------------------------------------------------------------

    def on_host_screen_asked(self, message: HostScreen.Asked) -> None:
        """Plan, start, drain, stop."""
        self._hosting.run(message.order)

    # --- copying ----------------------------------------------------------------------------

    def on_copied(self, message: Copied) -> None:
        """Say where copied text went."""
        self.notify(self._copies.told(message.text, message.what), markup=False)

    # --- the palette ------------------------------------------------------------------------

    def action_command_palette(self) -> None:
        """Offer all commands by name."""
        from diffuse_tui.screens.palette import Palette

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    # --- themes -----------------------------------------------------------------------------

    def _start_with(self, name: str) -> None:
        """What assigning `theme` does, but without reading all style sheets a second time."""
        self.set_reactive(App.theme, name)
        self.stylesheet.set_variables(self.get_css_variables())
        mode = "-dark-mode" if self.current_theme.dark else "-light-mode"
        self.set_classes([f"-theme-{name}", mode])
        self._refresh_truecolor_filter(self.ansi_theme)

    def action_next_theme(self) -> None:
        """Go round the themes."""
        self.choose_theme(theme_after(self.theme))

    def choose_theme(self, name: str) -> None:
        """Show and remember a theme."""
        self.theme = name
        self._remembered.keep("theme", name)

    def _theme_commands(self) -> Iterator[Command]:
        from diffuse_tui.screens.palette import Command

        for name in NAMES:
            about = "shown now" if name == self.theme else "t: the next one"
            yield Command(f"Theme: {name}", about, partial(self.choose_theme, name))

    # --- leaving ----------------------------------------------------------------------------

    def action_interrupt(self) -> None:
        """Ctrl+C once warns, twice quits."""
        self._leave_if_repeated("Ctrl+C", EXIT_INTERRUPTED)

    def action_ask_to_quit(self) -> None:
        """A lone q may be a word typed in the wrong place: twice quits, or an answer does."""
        asks = [ask for question in self.leaving_questions if (ask := question()) is not None]
        if asks:
            self.run_worker(self._leave_if_agreed(asks), group="leaving")
        else:
            self._leave_if_repeated("q", 0)

    def _answering(self) -> Coroutine[Any, Any, bool] | None:
        return ask_about_answer(self) if self._generations.busy else None

    async def _leave_if_agreed(self, asks: list[Coroutine[Any, Any, bool]]) -> None:
        if await may_leave(asks):
            self._leave(0)

    def _leave_if_repeated(self, key: str, code: int) -> None:
        if self._asked == key:
            self._leave(code)
            return
        self._asked = key
        self.notify(f"Press {key} again to quit.", timeout=ASK_S, markup=False)
        self.set_timer(ASK_S, self._calm)

    def _calm(self) -> None:
        self._asked = ""
