"""A conversation: what is sent along with a question, and what is said about an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.view import ChatMessage
from diffuse_tui.presenter.figures import NOTHING, counted, speed_text
from diffuse_tui.presenter.spans import Line, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.view import Finished, RouteStep

MAX_MESSAGES = 255
MAX_CHARS = 200_000
"""What travels with a question; older turns stay on the screen but are not sent."""


class Turn(NamedTuple):
    """A question and what was answered; turns without an answer are not part of the context."""

    question: str
    answer: str


class Context(NamedTuple):
    """The messages to send, and how many of the oldest turns did not fit."""

    messages: tuple[ChatMessage, ...]
    left_out: int


def context(turns: Sequence[Turn], question: str) -> Context:
    """All previous turns and the new question, the oldest dropped first when it is too much."""
    kept: list[Turn] = []
    room = MAX_CHARS - len(question)
    answered = [turn for turn in turns if turn.answer]
    for turn in reversed(answered):
        room -= len(turn.question) + len(turn.answer)
        if room < 0 or 2 * len(kept) + 3 > MAX_MESSAGES:
            break
        kept.append(turn)
    messages: list[ChatMessage] = []
    for turn in reversed(kept):
        messages.append(ChatMessage("user", turn.question))
        messages.append(ChatMessage("assistant", turn.answer))
    messages.append(ChatMessage("user", question))
    return Context(tuple(messages), len(answered) - len(kept))


def route_text(route: Sequence[RouteStep]) -> str:
    """`a1b2c3d4 0:10 → 9ab03d11 10:20 (relay)`."""
    steps = []
    for step in route[:8]:
        via = f" ({step.via})" if step.via == "relay" else ""
        steps.append(f"{clean_line(step.node[:8])} {step.slice}{via}")
    if len(route) > 8:
        steps.append(f"{len(route) - 8} more")
    return " → ".join(steps)


def opened_line(route: Sequence[RouteStep], prompt_tokens: int) -> Line:
    """What is known once the Route is open, until tokens arrive."""
    return (
        Span(f"{counted(prompt_tokens, 'prompt token')} via ", "dim"),
        Span(route_text(route), "accent"),
    )


def brief_line(done: Finished) -> Line:
    """`8 tok · 0.4 s · 25/s`, then how it was cut short and how many events there were."""
    why = {"stop": "", "length": " · cut", "cancelled": " · stopped"}[done.finish_reason]
    events = f" · ▲ {len(done.events)}" if done.events else ""
    rate = done.timings.tokens_per_s
    speed = f"{rate:.0f}/s" if rate >= 0.5 else NOTHING
    figures = f"{done.usage.completion_tokens} tok · {done.timings.total_s:.1f} s · {speed}"
    return (Span(f"{figures}{why}", "dim"), Span(events, "warning"))


def finished_lines(done: Finished, left_out: int) -> tuple[Line, ...]:
    """Route, time to first token and rate after an answer; then what happened on the way."""
    why = {
        "stop": "",
        "length": " · cut off at the token limit",
        "cancelled": " · stopped",
    }[done.finish_reason]
    figures = (
        f"{counted(done.usage.completion_tokens, 'token')}"
        f" · first after {done.timings.ttft_s:.2f} s"
        f" · {speed_text(done.timings.tokens_per_s)} tokens/s{why}"
    )
    lines: list[Line] = [
        (Span(figures, "dim"),),
        (Span("via ", "dim"), Span(route_text(done.route) or NOTHING, "accent")),
    ]
    lines += [(Span(f"▲ {clean_line(text)}", "warning"),) for text in done.events[:8]]
    if left_out:
        lines.append((Span(f"▲ the oldest {counted(left_out, 'turn')} did not fit", "warning"),))
    return tuple(lines)
