"""The two lines on top: which model, how it stands, and whether the node answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from diffuse_core.domain.plain_text import clean_line, shorten
from diffuse_core.errors import Unreachable
from diffuse_tui.presenter.figures import counted
from diffuse_tui.presenter.spans import Line, Span
from diffuse_tui.presenter.standing import absence, alone, standing

if TYPE_CHECKING:
    from diffuse_core.domain.view import ModelView, NetworkView
    from diffuse_tui.presenter.spans import Tone
    from diffuse_tui.presenter.standing import Standing

LinkState = Literal["connecting", "attached", "stalled", "disconnected"]

_LINK: dict[LinkState, tuple[str, Tone]] = {
    "connecting": ("◌", "dim"),
    "attached": ("●", "good"),
    "stalled": ("◐", "warning"),
    "disconnected": ("✖", "bad"),
}


class Link(NamedTuple):
    """The app's tie to its node, whatever that node reaches in turn.

    `reason` says why it is not attached and what happens next.
    """

    state: LinkState
    reason: str = ""


class NodeEnded(Unreachable):
    """The node that the app was attached to, and that it had not started, has ended."""


def title_line(
    title: str,
    model: ModelView | None,
    view: NetworkView | None,
    link: Link,
    width: int,
    crumbs: tuple[str, ...] = (),
) -> Line:
    """Where one is, model, number of nodes on the left; the link's state on the right."""
    word: str = link.state
    glyph, tone = _LINK[link.state]
    if link.state == "attached" and view is not None and alone(view):
        glyph, word, tone = "◌", "alone", "warning"
    right = f"{glyph} {word} "
    left: list[Span] = [_whereabouts(title, crumbs, (width - len(right)) // 2)]
    room = width - len(left[0].text) - len(right)
    if model is not None:
        count = len(view.models) if view else 0
        facts = f" {counted(model.layers, 'layer')} · {model.contract}"
        more = f" · m: {count} models" if count > 1 else ""
        name = clean_line(model.id, max(8, room - len(facts) - len(more) - 2))
        left.append(Span(f" {name}", "accent"))
        if len(name) + 1 + len(facts) <= room:
            left.append(Span(facts, "dim"))
        if more and sum(len(s.text) for s in left[1:]) + len(more) <= room:
            left.append(Span(more, "dim"))
    if view is not None:
        nodes = f"{' ·' if left[1:] else ''} {counted(len(view.nodes), 'node')}"
        if sum(len(s.text) for s in left[1:]) + len(nodes) < room:
            left.append(Span(nodes, "dim"))
    used = sum(len(span.text) for span in left)
    return (*left, Span(" " * max(1, width - used - len(right))), Span(right, tone))


def _whereabouts(title: str, crumbs: tuple[str, ...], room: int) -> Span:
    """Breadcrumbs; where they would crowd out the rest, only the last of them."""
    parts = [clean_line(part, 40) for part in (title, *crumbs)]
    text = " › ".join(parts)
    if crumbs and len(text) + 2 > room:
        text = f"› {clean_line(parts[-1], max(8, room - 4))}"
    return Span(f" {text} ", "strong")


def state_line(
    model: ModelView | None,
    view: NetworkView | None,
    link: Link,
    wanted: str | None,
    width: int,
) -> tuple[Line, Tone]:
    """The sentence, and the tone of the whole line."""
    if link.state == "connecting" and view is None:
        detail = link.reason or "waiting for the node's first picture of the network"
        return _sentence("◌", "Connecting", detail, "dim", width), "dim"
    if link.state in ("disconnected", "stalled"):
        tone: Tone = "bad" if link.state == "disconnected" else "warning"
        glyph = "✖" if tone == "bad" else "◐"
        return _sentence(glyph, link.state.capitalize(), link.reason, tone, width), tone
    shown: Standing = absence(wanted, view)
    if model is not None:
        shown = standing(model)
    detail = shown.fitted(width - len(f" {shown.glyph} {shown.word}: "))
    return _sentence(shown.glyph, shown.word, detail, shown.tone, width), shown.tone


def _sentence(glyph: str, word: str, detail: str, tone: Tone, width: int) -> Line:
    head = f" {glyph} {word}: "
    return (
        Span(head, tone),
        Span(shorten(clean_line(detail), max(1, width - len(head))), "plain"),
    )
