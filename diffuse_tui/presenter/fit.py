"""What would fit on this machine, as `diffuse plan --json` tells it, and as lines."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.figures import size_text
from diffuse_tui.presenter.spans import Line, Span

if TYPE_CHECKING:
    from diffuse_tui.presenter.spans import Tone

_LABEL = 13
_BILL = {
    "weights": "layers",
    "kv_reserve": "KV cache",
    "embedding": "embedding",
    "head": "head",
}
_SUMS = ("total", "capacity")
_STATES: dict[str, tuple[str, Tone]] = {
    "Robust": ("●", "good"),
    "Fragile": ("◐", "warning"),
    "Incomplete": ("○", "bad"),
}
_RANKED = 5
"""Models of a ranking that are worth a line each."""


class Changes(msgspec.Struct, frozen=True):
    """What the network has of it, in words, and the states before and after."""

    text: str
    before: str = ""
    after: str = ""


class Told(msgspec.Struct, frozen=True):
    """A sentence of the plan."""

    text: str


class Ranked(msgspec.Struct, frozen=True):
    """One of the models that `auto` chose among."""

    id: str
    reason: str
    contract: str = ""


class Fit(msgspec.Struct, frozen=True):
    """What `diffuse plan --json` prints, as far as it is shown. `bytes` is the bill."""

    model: str
    slice: tuple[int, int]
    reason: str
    bytes: dict[str, int]
    changes: Changes
    contract: str = ""
    already_here: tuple[int, int] | None = None
    more_memory: tuple[Told, ...] = ()
    more_hosts: Told | None = None
    ranking: tuple[Ranked, ...] = ()


def read_fit(text: bytes) -> Fit | None:
    """Read the JSON of a plan; None when it is none."""
    try:
        return msgspec.json.decode(text, type=Fit)
    except (msgspec.DecodeError, ValueError):
        return None


def fit_lines(fit: Fit, width: int) -> tuple[Line, ...]:
    """The plan in full, wrapped to `width` cells."""
    start, end = fit.slice
    name = clean_line(fit.model, 80)
    lines = [
        *_said("model", f"{name} · {clean_line(fit.contract, 8)}", width, "accent"),
        *_said("would take", f"layers {start}:{end}", width, "strong"),
        *_said("because", fit.reason, width),
        *_said("weighs", _bill(fit.bytes), width),
        *_said("of", f"{size_text(fit.bytes.get('capacity', 0))} that may be taken", width),
        *_said("changes", _arrow(fit.changes.text), width, _STATES.get(
            fit.changes.after, ("", "plain"))[1]),
    ]  # fmt: skip
    if fit.already_here is not None:
        start, end = fit.already_here
        here = f"the node here holds {start}:{end} of it already; planned as if it did not"
        lines += _said("here", here, width)
    for more in fit.more_memory[:2]:
        lines += _said("more memory", _arrow(more.text), width)
    if fit.more_hosts is not None:
        lines += _said("more hosts", _arrow(fit.more_hosts.text), width)
    for number, ranked in enumerate(fit.ranking[:_RANKED], 1):
        text = f"{number}. {clean_line(ranked.id, 60)}: {ranked.reason}"
        lines += _said("auto" if number == 1 else "", text, width)
    return tuple(lines)


def failure_lines(text: str, width: int) -> tuple[Line, ...]:
    """Why it is not known what would fit, or why a host did not start."""
    return tuple(_said("✖ failed", text, width, "bad"))


def last_words(text: str) -> str:
    """What a command that failed said at last, without its usage and without its own name.

    Lines that it wrapped belong together; what came before the last of them is not the reason.
    """
    lines = [clean_line(line.strip()) for line in text.strip().split("\n")]
    for line in reversed(lines):
        for start in ("diffuse: ", "Error: "):
            if line.startswith(start):
                return line.removeprefix(start)
    return lines[-1]


def _bill(sizes: dict[str, int]) -> str:
    parts = [
        f"{_BILL.get(name, clean_line(name, 20))} {size_text(size)}"
        for name, size in sizes.items()
        if name not in _SUMS and size > 0
    ]
    return f"{size_text(sizes.get('total', 0))}: {' + '.join(parts)}"


def _arrow(text: str) -> str:
    return text.replace(" -> ", " → ")


def _said(label: str, text: str, width: int, tone: Tone = "plain") -> list[Line]:
    """A label and text, wrapped; lines after the first are indented below the text."""
    room = max(16, width - _LABEL - 1)
    lines: list[Line] = []
    for part in textwrap.wrap(clean_line(text), room) or [""]:
        head = f" {label}" if not lines else ""
        lines.append((Span(head.ljust(_LABEL), "label"), Span(part, tone)))
    return lines
