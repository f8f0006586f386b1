"""An answer as it comes: to stdout, or collected for scripts; and what is told of it then."""

from __future__ import annotations

import re
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.domain.plain_text import clean
from diffuse_core.errors import DiffuseError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.view import Finished, GenerateRequest, RouteStep
    from diffuse_core.services.client import ClientService

_WENT_ON = re.compile(
    r"(stage \w+) \(layers [^)]*\) was lost \(.*\); (went on with .*)", re.DOTALL
)


async def stream_answer(client: ClientService, request: GenerateRequest) -> tuple[Finished, str]:
    """Write an answer to stdout as it comes; how it finished, and the text.

    Raises:
        DiffuseError: the generation failed; the line of what was written is ended.
    """
    from diffuse_core.domain.view import Finished, TextDelta

    shown: list[str] = []
    try:
        async with aclosing(client.generate(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta) and event.text:
                    shown.append(event.text)
                    # A stage may say what it likes; a terminal must not take it for commands.
                    sys.stdout.write(clean(event.text) if sys.stdout.isatty() else event.text)
                    sys.stdout.flush()
                elif isinstance(event, Finished):
                    return event, "".join(shown)
    except DiffuseError:
        if shown and not shown[-1].endswith("\n"):
            click.echo()
        raise
    raise DiffuseError("the generation ended without a word")


class Collected:
    """What there is of an answer, for scripts; also when it breaks off."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._prompt = 0
        self._route: tuple[RouteStep, ...] = ()
        self._finished: Finished | None = None

    @property
    def begun(self) -> bool:
        """Whether a token was drawn."""
        return bool(self._tokens)

    async def take(self, client: ClientService, request: GenerateRequest) -> None:
        """Run a generation to its end.

        Raises:
            DiffuseError: it failed; what came before is kept.
        """
        from diffuse_core.domain.view import Finished, RouteChosen, TextDelta

        async with aclosing(client.generate(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    self._text.append(event.text)
                    self._tokens.extend(event.token_ids)
                elif isinstance(event, RouteChosen):
                    self._route, self._prompt = event.route, event.prompt_tokens
                elif isinstance(event, Finished):
                    self._finished = event
                    return
        raise DiffuseError("the generation ended without a word; ask again")

    def told(self, error: DiffuseError | None = None) -> dict[str, Any]:
        """Everything, as plain data; with the error that broke it off, if one did."""
        import msgspec

        said = {"text": "".join(self._text), "token_ids": tuple(self._tokens)}
        if self._finished is not None:
            how = msgspec.to_builtins(self._finished)
            return {**said, **how, "route": _route_json(self._finished.route)}
        return {
            **said,
            "type": "failed",
            "finish_reason": "error",
            "usage": {"prompt_tokens": self._prompt, "completion_tokens": len(self._tokens)},
            "timings": None,
            # The route that it began on: of a later one nothing is known here.
            "route": _route_json(self._route),
            "events": (),
            "error": str(error),
        }


def _route_json(route: Sequence[RouteStep]) -> list[dict[str, Any]]:
    return [
        {"node": step.node, "slice": [step.slice.start, step.slice.end], "via": step.via}
        for step in route
    ]


def print_losses(finished: Finished) -> None:
    """One quiet line on stderr for each time that the answer went on without a lost stage."""
    for event in finished.events:
        if found := _WENT_ON.fullmatch(event):
            click.echo(f"({clean(found[1])} was lost; {clean(found[2])})", err=True)


def print_timings(finished: Finished) -> None:
    """Timings, route and what happened, to stderr, after what went to stdout."""
    sys.stdout.flush()
    times, usage = finished.timings, finished.usage
    click.echo(
        f"first token {times.ttft_s:.2f} s, {times.tokens_per_s:.1f} tokens/s, "
        f"{usage.prompt_tokens} prompt and {usage.completion_tokens} new tokens, "
        f"ended by {finished.finish_reason}",
        err=True,
    )
    click.echo(f"route {' → '.join(map(_step_text, finished.route))}", err=True)
    for event in finished.events:
        click.echo(f"event {clean(event)}", err=True)


def _step_text(step: RouteStep) -> str:
    relayed = " (relay)" if step.via == "relay" else ""
    return f"{step.slice} on {step.node[:8]}{relayed}"
