"""Measuring: one answer as a client hears it, with the times of everything that came."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diffuse_core.domain.view import (
    Audited,
    Failed,
    Finished,
    Healed,
    RouteChosen,
    TextDelta,
    Waiting,
)
from diffuse_core.errors import DiffuseError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Protocol

    from diffuse_core.domain.view import (
        GenerateEvent,
        GenerateRequest,
        RouteStep,
        StageTiming,
    )
    from diffuse_core.ports import Clock

    class Generates(Protocol):
        """What gives answers (see ports.Answers)."""

        def generate(self, request: GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
            """Stream a generation."""
            ...


@dataclass
class Heard:
    """What came of one request. Times are of the client's monotonic clock, in seconds.

    `at` are the times at which passes' tokens came, `counts` how many each gave. `passes` are
    their times on each Stage, where the request asked for them.
    """

    asked_at: float
    opened_at: float | None = None
    at: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    passes: list[tuple[StageTiming, ...]] = field(default_factory=list)
    prompt_tokens: int = 0
    route: tuple[RouteStep, ...] = ()
    events: list[str] = field(default_factory=list)
    healed: int = 0
    finished: Finished | None = None
    error: DiffuseError | None = None

    @property
    def tokens(self) -> int:
        """How many came."""
        return sum(self.counts)

    def note(self, event: GenerateEvent, now: float) -> None:
        """Take in what came at `now`."""
        match event:
            case TextDelta():
                self._note_text(event, now)
            case RouteChosen():
                self.opened_at = now
                self.route, self.prompt_tokens = event.route, event.prompt_tokens
            case Waiting():
                self.events.append(f"waited for layers {event.lost.slice}: {event.why}")
            case Healed():
                self.healed += 1
                self.route = event.route
                self.events.append(
                    f"stage {event.lost.slice} was lost and replaced in {event.seconds:.2f} s: "
                    f"{event.why}"
                )
            case Finished():
                self.finished, self.route = event, event.route
            case Failed():
                self.error = DiffuseError(event.message)
            case Audited():
                pass  # none is asked for

    def _note_text(self, delta: TextDelta, now: float) -> None:
        if not delta.token_ids:
            return
        if delta.place and self.counts:
            self.counts[-1] += len(delta.token_ids)
            return
        self.at.append(now)
        self.counts.append(len(delta.token_ids))
        self.passes.append(delta.stages)


async def hear(client: Generates, request: GenerateRequest, clock: Clock) -> Heard:
    """Listen to one answer to its end. An error is in what is heard, and not raised."""
    heard = Heard(clock.monotonic())
    try:
        async with aclosing(client.generate(request)) as events:
            async for event in events:
                heard.note(event, clock.monotonic())
    except DiffuseError as error:
        heard.error = error
        heard.events.extend(error.events)
    return heard
