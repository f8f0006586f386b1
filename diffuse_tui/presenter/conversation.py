"""What is said about an answer: the Route, figures, what befell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.narration import audit_text
from diffuse_core.domain.pass_times import ms_text, stage_times
from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.figures import NOTHING, counted, figure_text, speed_text
from diffuse_tui.presenter.spans import Line, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.view import (
        Audited,
        Finished,
        Healed,
        RouteStep,
        StageTiming,
        Waiting,
    )
    from diffuse_tui.presenter.waterfall import Times

MAX_STEPS = 8
"""Stages of a Route that are shown one by one."""


def route_text(route: Sequence[RouteStep]) -> str:
    """`a1b2c3d4 0:10 → 9ab03d11 10:20 (relay)`."""
    steps = []
    for step in route[:MAX_STEPS]:
        via = f" ({step.via})" if step.via == "relay" else ""
        steps.append(f"{clean_line(step.node[:8])} {step.slice}{via}")
    if len(route) > MAX_STEPS:
        steps.append(f"{len(route) - MAX_STEPS} more")
    return " → ".join(steps)


def opened_line(route: Sequence[RouteStep], prompt_tokens: int) -> Line:
    """What is known once the Route is open, until tokens arrive."""
    return (
        Span(f"{counted(prompt_tokens, 'prompt token')} via ", "dim"),
        Span(route_text(route), "accent"),
    )


def healed_line(healed: Healed) -> Line:
    """`✚ healed: stage 1a2b3c4d was lost, went on with 5e6f7a8b after 0.4 s`."""
    others = " and ".join(clean_line(step.node[:8]) for step in healed.replaced_by[:4])
    seconds = figure_text(max(0.0, healed.seconds), 1)
    text = (
        f"✚ healed: stage {clean_line(healed.lost.node[:8])} was lost, "
        f"went on with {others or 'another route'} after {seconds} s"
    )
    return (Span(text, "good"),)


def waiting_line(waiting: Waiting) -> Line:
    """`… waiting: stage 1a2b3c4d was lost, up to 10 s for a host that takes layers 10:20`."""
    seconds = figure_text(max(0.0, waiting.seconds))
    text = (
        f"… waiting: stage {clean_line(waiting.lost.node[:8])} was lost, up to "
        f"{seconds} s for a host that takes layers {waiting.lost.slice}"
    )
    return (Span(text, "warning"),)


def audited_line(found: Audited) -> Line:
    """`▲ audit: stage 1a2b3c4d (layers 10:20) did not agree with 5e6f7a8b; doubtful ...`."""
    return (Span(f"▲ audit: {clean_line(audit_text(found))}", "warning"),)


def stage_lines(
    passes: Sequence[tuple[StageTiming, ...]], route: Sequence[RouteStep]
) -> list[Line]:
    """For each Stage what a pass usually takes there, and its share of the whole."""
    times = stage_times(passes, len(route))
    return [
        (
            Span(f"{clean_line(step.node[:8])} {step.slice} ", "accent"),
            Span(
                f"wire {ms_text(stage.wire.p50)} · queue {ms_text(stage.queue.p50)}"
                f" · compute {ms_text(stage.compute.p50)} ms · {stage.share:.0%}",
                "dim",
            ),
        )
        for step, stage in zip(route[:MAX_STEPS], times, strict=False)
    ]


def brief_line(done: Finished) -> Line:
    """`8 tok · 0.4 s · 25/s`, then how it was cut short and how many events there were."""
    why = {"stop": "", "length": " · cut", "cancelled": " · stopped"}[done.finish_reason]
    events = f" · ▲ {len(done.events)}" if done.events else ""
    rate = done.timings.tokens_per_s
    speed = f"{figure_text(rate)}/s" if rate >= 0.5 else NOTHING
    seconds = figure_text(done.timings.total_s, 1)
    figures = f"{done.usage.completion_tokens} tok · {seconds} s · {speed}"
    return (Span(f"{figures}{why}", "dim"), Span(events, "warning"))


def stopped_lines(times: Times) -> tuple[Line, ...]:
    """After an answer that was stopped: tokens, route and Stages' times, as far as it came."""
    figures = ""
    if times.tokens:
        figures = (
            f" · {counted(times.tokens, 'token')} · {speed_text(times.tokens_per_s)} tokens/s"
        )
    lines: list[Line] = [(Span("■ stopped", "warning"), Span(figures, "dim"))]
    if times.route:
        lines.append((Span("via ", "dim"), Span(route_text(times.route), "accent")))
    return (*lines, *(stage_lines(times.passes, times.route) if times.passes else ()))


def finished_lines(
    done: Finished,
    left_out: int,
    passes: Sequence[tuple[StageTiming, ...]] = (),
    seed: int | None = None,
) -> tuple[Line, ...]:
    """Route, time to first token and rate after an answer, its seed, and the Stages' times.

    Then what happened on the way.
    """
    why = {
        "stop": "",
        "length": " · cut off at the token limit",
        "cancelled": " · stopped",
    }[done.finish_reason]
    figures = (
        f"{counted(done.usage.completion_tokens, 'token')}"
        f" · first after {figure_text(done.timings.ttft_s, 2)} s"
        f" · {speed_text(done.timings.tokens_per_s)} tokens/s{why}"
        f"{'' if seed is None else f' · seed {seed}'}"
    )
    lines: list[Line] = [
        (Span(figures, "dim"),),
        (Span("via ", "dim"), Span(route_text(done.route) or NOTHING, "accent")),
    ]
    lines += stage_lines(passes, done.route)
    lines += [(Span(f"▲ {clean_line(text)}", "warning"),) for text in done.events[:8]]
    if left_out:
        lines.append((Span(f"▲ the oldest {counted(left_out, 'turn')} did not fit", "warning"),))
    return tuple(lines)
