"""An answer as it comes: to stdout, or collected for scripts; also when it breaks off."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Protocol

import click

from diffuse_core.cli.waterfall_text import token_timings
from diffuse_core.domain.narration import audit_text
from diffuse_core.domain.plain_text import clean
from diffuse_core.errors import DiffuseError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection

    from diffuse_core.domain.decoding import TokenLogprobs
    from diffuse_core.domain.view import (
        Audited,
        Finished,
        GenerateEvent,
        GenerateRequest,
        Healed,
        RouteStep,
        StageTiming,
        TextDelta,
        Timings,
        Waiting,
    )

SHORT = 8
MAY_BE_WRONG = "this answer may be wrong from the beginning: ask again"
"""Where an audit did not agree with a Stage."""


class Source(Protocol):
    """What gives answers: services.client, or any of ports.Answers."""

    def generate(self, request: GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
        """Stream a generation; closing the generator cancels it."""
        ...

    async def token_texts(self, model: str, tokens: Collection[int]) -> dict[int, str]:
        """Texts of single tokens of a model."""
        ...


class Answer:
    """What there is of the answer to a request.

    `error` is what broke it off, if something did; what came before is kept. It was cancelled
    where it is neither finished nor broken off.
    """

    def __init__(self, request: GenerateRequest) -> None:
        self.request = request
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.words: dict[int, str] = {}
        """Texts of the tokens that `logprobs` names."""
        self.stages: list[tuple[StageTiming, ...]] = []
        """Times of each pass, where asked for."""
        self.given: list[int] = []
        """How many tokens each pass gave."""
        self.healed: list[Healed] = []
        self.route: tuple[RouteStep, ...] = ()
        self.finished: Finished | None = None
        """That it is complete; audits may follow."""
        self.audits: list[Audited] = []
        self.error: DiffuseError | None = None
        self.prompt_tokens = 0
        self._text: list[str] = []
        self._asked_at = 0.0
        self._times: tuple[float, float] | None = None
        """When the first token came, and the newest."""

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._text)

    @property
    def begun(self) -> bool:
        """Whether a token was drawn."""
        return bool(self.tokens)

    def ask(self, model: str) -> None:
        """Ask a model that was chosen after the request was made."""
        import msgspec

        self.request = msgspec.structs.replace(self.request, model=model)

    async def take(
        self,
        client: Source,
        show: Callable[[str], None] | None = None,
        complete: Callable[[], None] | None = None,
    ) -> None:
        """Run the generation, and its audits.

        `show` is given text as it comes, `complete` is called when there is no more of it.
        """
        self.error = None
        try:
            await self._take(client, show, complete)
        except DiffuseError as error:
            self.error = error
        if self.logprobs:
            named = {token for entry in self.logprobs for token, _ in entry.top}
            # A model that has just gone leaves its tokens without a text.
            with suppress(DiffuseError):
                self.words = await client.token_texts(self.request.model, named.union(self.tokens))

    async def _take(
        self,
        client: Source,
        show: Callable[[str], None] | None,
        complete: Callable[[], None] | None,
    ) -> None:
        from diffuse_core.domain.view import Finished, TextDelta

        self._asked_at = asyncio.get_running_loop().time()
        async with aclosing(client.generate(self.request)) as events:
            async for event in events:
                self._note(event)
                if show is not None and isinstance(event, TextDelta) and event.text:
                    show(event.text)
                if isinstance(event, Finished):
                    if complete is not None:
                        complete()
                    if event.audits:
                        click.echo(f"({auditing_text(event.audits)})", err=True)
        if self.finished is None:
            raise DiffuseError("the generation ended without a word; ask again")

    def _note(self, event: GenerateEvent) -> None:
        from diffuse_core.domain.view import (
            Audited,
            Failed,
            Finished,
            Healed,
            RouteChosen,
            TextDelta,
            Waiting,
        )

        match event:
            case TextDelta():
                self._note_text(event)
            case RouteChosen():
                self.route, self.prompt_tokens = event.route, event.prompt_tokens
            case Waiting():
                # A stream that stands still for seconds is to say why.
                self._say_between(waiting_text(event))
            case Audited():
                self.audits.append(event)
                if self.finished is None:
                    self._say_between(f"audit: {audit_text(event)}")
                    if event.verdict == "differs":
                        self._say_between(f"{MAY_BE_WRONG}; Ctrl+C ends it")
            case Healed():
                self.route = event.route
                self.healed.append(event)
            case Finished():
                self.route = event.route
                self.finished = event
            case Failed():
                raise DiffuseError(event.message)

    def _say_between(self, text: str) -> None:
        """A line for people, in the middle of the answer."""
        lead = "\n" if self.text and sys.stderr.isatty() else ""
        click.echo(f"{lead}({clean(text)})", err=True)

    def _note_text(self, delta: TextDelta) -> None:
        if delta.token_ids:
            now = asyncio.get_running_loop().time()
            self._times = (now if self._times is None else self._times[0], now)
        self._text.append(delta.text)
        self.tokens.extend(delta.token_ids)
        self.logprobs.extend(delta.logprobs)
        if delta.token_ids and self.request.timings:
            if not (delta.place and self.given):
                self.stages.append(delta.stages)
                self.given.append(0)
            self.given[-1] += 1

    def timings(self) -> Timings | None:
        """How long it took, as far as it came; None before the first token."""
        from diffuse_core.domain.view import Timings

        if self.finished is not None:
            return self.finished.timings
        if self._times is None:
            return None
        first, last = self._times
        count, span = len(self.tokens), last - first
        return Timings(
            ttft_s=round(first - self._asked_at, 4),
            tokens_per_s=round((count - 1) / span, 2) if count > 1 and span > 0 else 0.0,
            total_s=round(last - self._asked_at, 4),
        )

    def told(self) -> dict[str, Any]:
        """Everything, as plain data; with the error that broke it off, if one did."""
        import msgspec

        said: dict[str, Any] = {
            "text": self.text,
            "token_ids": tuple(self.tokens),
            "model": self.request.model,
            "seed": self.request.sampling.seed,
        }
        if self.request.logprobs is not None:
            said["logprobs"] = self._logprobs_json()
        if self.request.timings:
            said["token_timings"] = token_timings(self.stages, self.given)
        said |= (
            self._ending_json() if self.finished is None else msgspec.to_builtins(self.finished)
        )
        said["route"] = msgspec.to_builtins(self.route)
        said["events"] = self.events()
        said["healed"] = [_told(event, but="route") for event in self.healed]
        said["audits"] = [_told(event) for event in self.audits]
        if self.error is not None:
            said["error"] = str(self.error)
        return said

    def _ending_json(self) -> dict[str, Any]:
        """How it ended before it was finished."""
        import msgspec

        cancelled = self.error is None
        return {
            "type": "cancelled" if cancelled else "failed",
            "finish_reason": "cancelled" if cancelled else "error",
            "usage": {"prompt_tokens": self.prompt_tokens, "completion_tokens": len(self.tokens)},
            "timings": msgspec.to_builtins(self.timings()),
        }

    def events(self) -> tuple[str, ...]:
        """What happened on the way, and whom audits found out, in words."""
        accused = tuple(audit_text(found) for found in self.audits if found.accuses)
        if self.finished is not None:
            return (*self.finished.events, *accused)
        told = () if self.error is None else self.error.events
        return (*(told or map(healed_text, self.healed)), *accused)

    def _logprobs_json(self) -> list[dict[str, Any]]:
        def one(token: int, value: float) -> dict[str, Any]:
            return {"token_id": token, "token": self.words.get(token), "logprob": value}

        return [
            {**one(token, entry.drawn), "top": [one(*likely) for likely in entry.top]}
            for token, entry in zip(self.tokens, self.logprobs, strict=False)
        ]


def _told(event: Healed | Audited, but: str = "type") -> dict[str, Any]:
    """An event as plain data, without its kind."""
    import msgspec

    told: dict[str, Any] = msgspec.to_builtins(event)
    return {name: value for name, value in told.items() if name not in ("type", but)}


def show_text(text: str) -> None:
    """Write part of an answer to stdout, at once."""
    # A stage may say what it likes; a terminal must not take it for commands.
    sys.stdout.write(clean(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


async def stream_answer(client: Source, request: GenerateRequest) -> Answer:
    """Write an answer to stdout as it comes, and give it.

    Raises:
        DiffuseError: the generation failed; the line of what was written is ended.
    """
    answer = Answer(request)
    await answer.take(client, show_text)
    if answer.error is not None:
        end_line(answer)
        raise answer.error
    return answer


def end_line(answer: Answer) -> None:
    """End the line of what was shown; one that broke off before any text has none."""
    if answer.finished is not None or (answer.text and not answer.text.endswith("\n")):
        click.echo()


def waiting_text(event: Waiting) -> str:
    """Which stage was lost, what for and how long is waited."""
    return (
        f"{_lost_text(event)}; waiting up to {event.seconds:.0f} s for a host that takes these "
        "layers"
    )


def healed_text(event: Healed) -> str:
    """Which stage was lost, and how the answer went on."""
    taken = ", ".join(step.node[:SHORT] for step in event.replaced_by)
    return f"{_lost_text(event)}; went on with {taken} after {event.seconds:.1f} s"


def _lost_text(event: Healed | Waiting) -> str:
    cause = f" ({event.why})" if event.why else ""
    return f"stage {event.lost.node[:SHORT]} (layers {event.lost.slice}) was lost{cause}"


def auditing_text(stages: int) -> str:
    """What is waited for after an answer."""
    return f"auditing {stages} stage{'' if stages == 1 else 's'} of this answer; Ctrl+C ends that"
