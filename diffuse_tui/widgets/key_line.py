"""The bottom line: the keys that work here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from textual.widgets import Footer
from textual.widgets._footer import FooterKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult
    from textual.screen import Screen


class _Shown(NamedTuple):
    key: str
    display: str
    description: str
    action: str
    enabled: bool
    tooltip: str


class KeyLine(Footer):
    """Textual's footer, composed anew only where it would show something else.

    Textual's composes a widget for each key whenever the focus moves, and binds each to a value
    of the footer, which holds on to all of them as long as there is a footer.
    """

    def __init__(self) -> None:
        super().__init__(show_command_palette=False, compact=True)
        self._shown: tuple[_Shown, ...] = ()

    def compose(self) -> ComposeResult:
        """A widget for each key."""
        self.styles.grid_size_columns = len(self._shown)
        for each in self._shown:
            yield FooterKey(
                each.key,
                each.display,
                each.description,
                each.action,
                disabled=not each.enabled,
                tooltip=each.tooltip,
            )

    def bindings_changed(self, screen: Screen[object]) -> None:
        """Show what works now."""
        if not (self.is_attached and screen is self.screen and self.app.app_focus):
            return
        shown = tuple(self._working())
        if shown != self._shown:
            self._shown = shown
            super().bindings_changed(screen)

    def _working(self) -> Iterator[_Shown]:
        actions = set()
        focused = self.screen.focused
        for _, binding, enabled, tooltip in self.screen.active_bindings.values():
            if binding.show and binding.action not in actions:
                display = self.app.get_key_display(binding)
                # Textual leaves out letters while one types, but not what it knows by a name.
                char = display if len(display) == 1 and display.isascii() else None
                if focused is not None and focused.check_consume_key(binding.key, char):
                    continue
                actions.add(binding.action)
                yield _Shown(
                    binding.key, display, binding.description, binding.action, enabled, tooltip
                )
