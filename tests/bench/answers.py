"""Answers as a client hears them: which tokens, and when."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from diffuse_core.domain.view import Finished, Healed, RouteChosen, TextDelta

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from diffuse_core.domain.view import GenerateRequest, RouteStep
    from diffuse_core.services.client import ClientService


@dataclass
class Heard:
    """One answer. Times are of `time.perf_counter`."""

    began: float
    tokens: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """How many tokens came at each of these times."""
    prompt_tokens: int = 0
    route: tuple[RouteStep, ...] = ()
    healed: list[Healed] = field(default_factory=list)
    finished: Finished | None = None
    error: str = ""

    @property
    def first_s(self) -> float:
        """Seconds to the first token."""
        return self.at[0] - self.began

    @property
    def rate(self) -> float:
        """Tokens/s after the first ones that came."""
        return (len(self.tokens) - self.counts[0]) / (self.at[-1] - self.at[0])

    @property
    def gaps(self) -> list[float]:
        """Seconds between what came, the wait for the first left out."""
        return [later - before for before, later in pairwise(self.at)]


async def hear(
    client: ClientService,
    request: GenerateRequest,
    on_tokens: Callable[[Heard], Awaitable[None]] | None = None,
    heard: Heard | None = None,
) -> Heard:
    """Listen to one answer to its end; `on_tokens` is called whenever some came."""
    heard = heard or Heard(time.perf_counter())
    async with aclosing(client.generate(request)) as events:
        async for event in events:
            if isinstance(event, RouteChosen):
                heard.route, heard.prompt_tokens = event.route, event.prompt_tokens
            elif isinstance(event, TextDelta) and event.token_ids:
                heard.at.append(time.perf_counter())
                heard.counts.append(len(event.token_ids))
                heard.tokens.extend(event.token_ids)
                if on_tokens is not None:
                    await on_tokens(heard)
            elif isinstance(event, Healed):
                heard.healed.append(event)
            elif isinstance(event, Finished):
                heard.finished = event
    return heard
