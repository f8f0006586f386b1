"""What is told beside an answer, on stderr: losses, timings, how likely its tokens were."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING

import click

from diffuse_core.cli.answer import MAY_BE_WRONG, SHORT, Answer, healed_text
from diffuse_core.cli.waterfall_text import waterfall_lines
from diffuse_core.domain.narration import audit_text
from diffuse_core.domain.plain_text import clean

if TYPE_CHECKING:
    from diffuse_core.domain.view import RouteStep


def print_losses(answer: Answer) -> None:
    """One quiet line for each time that the answer went on without a lost stage."""
    for event in answer.healed:
        _say(f"({healed_text(event)})")


def print_audits(answer: Answer) -> None:
    """A line for each Stage that was audited, and whether the answer is to be trusted."""
    for found in answer.audits:
        _say(f"audit: {audit_text(found)}")
    if any(found.verdict == "differs" for found in answer.audits):
        _say(f"({MAY_BE_WRONG})")


def print_timings(answer: Answer) -> None:
    """Timings, route, what happened, and where tokens spent their time."""
    finished = answer.finished
    if finished is None:
        print_losses(answer)
        return
    sys.stdout.flush()
    _say(times_text(answer) or "")
    _say(f"route {' → '.join(map(step_text, finished.route))}")
    for event in finished.events:
        _say(f"event {event}")
    for line in waterfall_lines(answer.stages, answer.route):
        _say(line)


def print_logprobs(answer: Answer) -> None:
    """A line for each token: its chance in percent, then the likeliest ones'."""
    sys.stdout.flush()
    for token, entry in zip(answer.tokens, answer.logprobs, strict=False):
        likeliest = ", ".join(_chance(answer, *likely) for likely in entry.top)
        _say(_chance(answer, token, entry.drawn) + (f"  of {likeliest}" if likeliest else ""))


def _chance(answer: Answer, token: int, logprob: float) -> str:
    word = answer.words.get(token)
    text = f"#{token}" if word is None else json.dumps(word, ensure_ascii=False)
    return f"{text} {100 * math.exp(logprob):.1f} %"


def times_text(answer: Answer) -> str | None:
    """Tokens and times of an answer, as far as it came; None before its first token."""
    times, finished = answer.timings(), answer.finished
    if times is None:
        return None
    new = len(answer.tokens) if finished is None else finished.usage.completion_tokens
    prompt = answer.prompt_tokens if finished is None else finished.usage.prompt_tokens
    ending = "broken off" if answer.error is not None else "stopped"
    if finished is not None:
        ending = f"ended by {finished.finish_reason}"
    return (
        f"first token {times.ttft_s:.2f} s, {times.tokens_per_s:.1f} tokens/s, "
        f"{prompt} prompt and {new} new tokens, {ending}"
    )


def step_text(step: RouteStep) -> str:
    """One Stage of a Route: `0:15 on 01234567 (relay)`."""
    relayed = " (relay)" if step.via == "relay" else ""
    return f"{step.slice} on {step.node[:SHORT]}{relayed}"


def _say(line: str) -> None:
    click.echo(clean(line), err=True)
