"""Findings for people: shape and word of each state, what was found, what to do."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.doctor.findings import STATES, Finding, State, worst
from diffuse_core.domain.plain_text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 80
_INDENT = " " * 12
_SHAPES: dict[State, tuple[str, str]] = {
    "ok": ("✓", "+"),
    "note": ("●", "*"),
    "warning": ("▲", "!"),
    "problem": ("✗", "X"),
}
"""For each state a sign that also those tell apart who see no colours; in ASCII if need be."""
_COLOURS: dict[State, str] = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "red"}


def lines_of(finding: Finding, *, plain: bool, colours: bool) -> list[str]:
    """One finding in lines of WIDTH. `plain` is ASCII."""
    shape = _SHAPES[finding.state][plain]
    head = f"{shape} {finding.state:<8}"
    text = clean_line(f"{finding.name}: {finding.found}")
    lines = _wrapped(text, f"{head}  ", _INDENT)
    if finding.step:
        arrow = "-> " if plain else "→ "
        lines += _wrapped(clean_line(finding.step), _INDENT + arrow, _INDENT + " " * len(arrow))
    if plain:
        lines = [line.encode("ascii", "replace").decode() for line in lines]
    if colours:
        styled = click.style(head, fg=_COLOURS[finding.state])
        lines[0] = styled + lines[0][len(head) :]
    return lines


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


class Screen:
    """Prints findings as they come, each group under its name."""

    def __init__(self) -> None:
        self._plain, self._colours = not _takes_signs(), _takes_colours()
        self._group = ""

    def show(self, group: str, findings: Sequence[Finding]) -> None:
        """Print findings of a group."""
        if findings and group != self._group:
            head = f"\n{group}" if self._group else group
            click.echo(click.style(head, bold=True) if self._colours else head)
            self._group = group
        for finding in findings:
            lines = lines_of(finding, plain=self._plain, colours=self._colours)
            click.echo("\n".join(lines))
        sys.stdout.flush()


def summary(findings: Sequence[Finding]) -> str:
    """How many there are of each state, the worst first."""
    counts = {state: sum(one.state == state for one in findings) for state in STATES}
    return ", ".join(
        f"{count} {state}{'s' if count > 1 and state != 'ok' else ''}"
        for state in reversed(STATES)
        if (count := counts[state])
    )


def _takes_signs() -> bool:
    try:
        "".join(shape for shape, _ in _SHAPES.values()).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _takes_colours() -> bool:
    dull = os.environ.get("NO_COLOR") or os.environ.get("TERM") in (None, "", "dumb")
    return sys.stdout.isatty() and not dull


def plain_data(
    found: Sequence[tuple[str, Finding]], seconds: float, *, complete: bool
) -> dict[str, Any]:
    """All of it, for scripts."""
    import msgspec

    listed = [{"group": group, **msgspec.to_builtins(one)} for group, one in found]
    return {
        "state": worst(one for _, one in found),
        "complete": complete,
        "counts": {word: sum(one["state"] == word for one in listed) for word in STATES},
        "seconds": round(seconds, 2),
        "findings": listed,
    }
