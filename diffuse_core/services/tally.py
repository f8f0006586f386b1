"""Tallies: what happened since the process started. They only ever grow, as counters must.

Services count where it happens, in plain integers; whoever shows the figures reads them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

from diffuse_core.domain.view import Audited, Failed, Finished, Healed, RouteChosen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.view import GenerateEvent

PASS_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Seconds: from a pass of a small model in the event loop to a piece of prompt on a slow CPU."""
ANSWER_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Spread:
    """How values are spread: counted by size, and their sum.

    `counts` has one entry for each of `bounds` (values up to and including it, above the one
    before), and a last one for all greater values.
    """

    def __init__(self, bounds: Sequence[float] = PASS_BOUNDS_S) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Account for one value; negative ones, of clocks that were set, count as 0."""
        value = max(0.0, value)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class StageTally:
    """What a Host did in all the Slices that it held, one after the other.

    `passes` are seconds of compute of short passes (tokens) and long ones (pieces of prompts),
    `waits` seconds that steps were ready before their short pass began. `refused` and `failed`
    count Sessions by reason.
    """

    def __init__(self) -> None:
        self.prompt_rows = 0
        self.decode_rows = 0
        self.drawn = 0
        self.short = Spread()
        self.long = Spread()
        self.waits = Spread()
        self.opened = 0
        self.closed = 0
        self.refused: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def rows(self, position: int, rows: int, prompt: int) -> None:
        """A step of `rows` rows from `position` on had its pass, of a Session of that `prompt`."""
        of_prompt = min(max(prompt - position, 0), rows)
        self.prompt_rows += of_prompt
        self.decode_rows += rows - of_prompt


class AnswerTally:
    """What came of the answers that were asked for here, from their events."""

    def __init__(self) -> None:
        self.started = 0
        self.finished: Counter[str] = Counter()
        """By the reason of their end; those that were given up amid are `cancelled`."""
        self.failed: Counter[int] = Counter()
        """By the exit code that a command would have."""
        self.prompt_tokens = 0
        self.tokens = 0
        self.healed = 0
        self.audits: Counter[str] = Counter()
        """By verdict."""
        self.first_token = Spread(ANSWER_BOUNDS_S)
        """Seconds."""

    def take(self, event: GenerateEvent) -> None:
        """Account for an event of an answer."""
        match event:
            case RouteChosen():
                self.started += 1
                self.prompt_tokens += event.prompt_tokens
            case Finished():
                self.finished[event.finish_reason] += 1
                self.tokens += event.usage.completion_tokens
                self.first_token.add(event.timings.ttft_s)
            case Healed():
                self.healed += 1
            case Audited():
                self.audits[event.verdict] += 1
            case Failed():
                self.failed[event.exit_code] += 1
            case _:
                pass
