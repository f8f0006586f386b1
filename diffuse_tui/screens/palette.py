"""The command palette's commands: the keys of the screen it was opened over, and the app's own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from textual.app import App
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Provider
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.screens.closing import ClosesOnce
from diffuse_tui.widgets.paint import TONES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from textual.binding import ActiveBinding
    from textual.command import Hits
    from textual.dom import DOMNode

_OURS = "diffuse_tui."
ABOUT_AT = 34
"""Column at which keys stand, behind all but the longest titles."""


class Command(NamedTuple):
    """What can be chosen. `listed` ones are shown before anything is typed."""

    title: str
    about: str
    run: Callable[[], Awaitable[object] | object]
    listed: bool = True


class Sourced(Protocol):
    """An app that knows more commands than its bindings."""

    command_sources: list[Callable[[], Iterable[Command]]]


class Palette(ClosesOnce, CommandPalette):
    """The palette as Textual has it, but it closes once, stands having no room, does not blink."""

    def on_mount(self) -> None:
        """Keep the cursor still: a blinking one would keep an idle app drawing."""
        self.query_one(Input).cursor_blink = False

    def _action_command_list(self, action: str) -> None:
        if self.query_one(CommandList).scrollable_content_region:
            super()._action_command_list(action)


class Commands(Provider):
    """Every action with its key, then what the app's sources add: models, nodes, themes."""

    async def discover(self) -> Hits:
        """All that is listed at once."""
        for command in self._all():
            if command.listed:
                shown = _line(Content(command.title), command.about)
                yield DiscoveryHit(shown, command.run, text=command.title)

    async def search(self, query: str) -> Hits:
        """What matches."""
        matcher = self.matcher(query)
        for command in self._all():
            score = matcher.match(command.title)
            if score > 0:
                shown = _line(matcher.highlight(command.title), command.about)
                yield Hit(score, shown, command.run, text=command.title)

    def _all(self) -> Iterator[Command]:
        yield from bound(self.app, self.screen)
        for source in cast("Sourced", self.app).command_sources:
            for command in source():
                # Names come from the network: no escapes, and not without end.
                yield command._replace(title=clean_line(command.title, 80))


def _line(title: Content, about: str) -> Content:
    """A command on one line: what it does, and its key or what else tells it from others."""
    room = " " * max(2, ABOUT_AT - title.cell_length)
    return Content.assemble(title, room, (clean_line(about, 40), TONES["dim"]))


def bound(app: App[object], screen: Screen[object]) -> Iterator[Command]:
    """What the keys of `screen` do now, one command for each action."""
    keys: dict[tuple[DOMNode, str], list[str]] = {}
    found: dict[tuple[DOMNode, str], ActiveBinding] = {}
    for active in screen.active_bindings.values():
        if _is_own(active) and active.enabled:
            action = (active.node, active.binding.action)
            found.setdefault(action, active)
            keys.setdefault(action, []).append(app.get_key_display(active.binding))
    # What leads somewhere before what only moves the part that has the focus.
    for action, active in sorted(found.items(), key=lambda each: not _leads(each[0][0])):
        run = partial(app.run_action, active.binding.action, active.node)
        yield Command(active.binding.description, "  ".join(keys[action]), run)


def _leads(node: DOMNode) -> bool:
    return isinstance(node, Screen | App)


def _is_own(active: ActiveBinding) -> bool:
    """Whether it is a command of this app, and none of those that move a cursor about."""
    if not active.binding.description or "command_palette" in active.binding.action:
        return False
    return any(
        active.binding.action == own.action
        for kind in type(active.node).__mro__
        if kind.__module__.startswith(_OURS)
        for own in kind.__dict__.get("BINDINGS", ())
    )
