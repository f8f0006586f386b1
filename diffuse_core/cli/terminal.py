"""The terminal of line-based commands."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.log_lines import lines_are_json, tell

if TYPE_CHECKING:
    from collections.abc import Iterator


class Stopped(Exception):  # noqa: N818
    """Raised in the callback of work's progress to end it."""


class Bar:
    """A progress bar on stderr, from the first sign of progress on; `close` cancels the work."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: Any = None
        self._closed = False
        self._told = False

    def show(self, fraction: float) -> None:
        """Draw `fraction`; called in the thread that works."""
        if self._closed:
            raise Stopped
        if lines_are_json():
            if not self._told:
                self._told = True
                tell(self._label, err=True)
            return
        if self._bar is None:
            self._bar = click.progressbar(
                length=1000, label=self._label, file=sys.stderr, show_percent=True, show_eta=False
            )
            self._bar.render_progress()
        self._bar.update(max(0, int(fraction * 1000) - self._bar.pos))

    def tell(self, what: str, fraction: float) -> None:
        """Draw `fraction`, and what is being done. Where there is no terminal only that."""
        if self._bar is not None:
            self._bar.label = what
        elif what != self._label and not sys.stderr.isatty():
            tell(what, err=True)
            self._told = True
        self._label = what
        if sys.stderr.isatty():
            self.show(fraction)

    def close(self) -> None:
        """Leave the line of the bar."""
        self._closed = True
        if self._bar is not None:
            self._bar.render_finish()


@contextlib.contextmanager
def typed_ahead() -> Iterator[None]:
    """Keep keys typed meanwhile off the screen, where text streams; they are not lost.

    They wait as they were typed, the Enter key among them, for whoever reads keys next.
    """
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    try:
        before = termios.tcgetattr(sys.stdin)
    except (termios.error, OSError, ValueError):  # no terminal
        yield
        return
    quiet = [*before]
    quiet[0] &= ~termios.ICRNL
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        # A terminal that was closed meanwhile takes nothing any more.
        with contextlib.suppress(termios.error, OSError, ValueError):
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
