"""What a check found: a state, in a word, what was seen, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

State = Literal["ok", "note", "warning", "problem"]

STATES: tuple[State, ...] = ("ok", "note", "warning", "problem")
"""From good to bad."""
EXIT_PROBLEM = 8


class Finding(msgspec.Struct, frozen=True):
    """What one check found.

    `step` is what to do next, empty where nothing is to be done. `facts` are the figures that the
    finding rests on, for scripts; never a secret.
    """

    name: str
    state: State
    found: str
    step: str = ""
    facts: dict[str, Any] = {}


def ok(name: str, found: str, **facts: Any) -> Finding:
    """All is well."""
    return Finding(name, "ok", found, "", facts)


def note(name: str, found: str, step: str = "", **facts: Any) -> Finding:
    """Worth to know, and no fault."""
    return Finding(name, "note", found, step, facts)


def warning(name: str, found: str, step: str, **facts: Any) -> Finding:
    """It works, and will be slow, fragile or short of something."""
    return Finding(name, "warning", found, step, facts)


def problem(name: str, found: str, step: str, **facts: Any) -> Finding:
    """Something will not work."""
    return Finding(name, "problem", found, step, facts)


def worst(findings: Iterable[Finding]) -> State:
    """The worst state of all; `ok` of none."""
    return max((one.state for one in findings), key=STATES.index, default="ok")


def exit_code(findings: Iterable[Finding]) -> int:
    """0, or EXIT_PROBLEM where there is a problem."""
    return EXIT_PROBLEM if worst(findings) == "problem" else 0
