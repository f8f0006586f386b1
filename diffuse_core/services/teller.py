"""Turns drawn tokens into text as it comes, and keeps count of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.view import TextDelta, Timings, Usage
from diffuse_core.domain.waterfall import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diffuse_core.domain.decoding import FinishReason
    from diffuse_core.domain.messages import TokensDrawn
    from diffuse_core.ports import TextStream


class Teller:
    """The text of one generation. Times are of one clock, in seconds."""

    def __init__(self, stream: TextStream, started: float, *, timed: bool) -> None:
        self.finish: FinishReason | None = None
        """Why it ended, once it did."""
        self._stream = stream
        self._timed = timed
        self._count = 0
        self._started = self._first = self._last = started

    def deltas(self, drawn: TokensDrawn, stages: int, now: float) -> Iterator[TextDelta]:
        """What to show of tokens that came at `now` over a Route of so many Stages.

        One for each token, up to the one that ends the answer.
        """
        self._last = now
        if self._count == 0:
            self._first = now
        times = read(drawn.marks, stages) if self._timed else ()
        for index, token in enumerate(drawn.tokens):
            self._count += 1
            if index == len(drawn.tokens) - 1:
                self.finish = drawn.finish
            text = "" if self.finish == "stop" else self._stream.push(token)
            if self._stream.stopped:
                self.finish = "stop"
            yield TextDelta(
                text,
                (token,),
                logprobs=drawn.logprobs[index : index + 1],
                stages=() if index else times,
                place=index,
                held=self._stream.held,
            )
            if self.finish is not None:
                return

    def tail(self) -> str:
        """What was held back and is part of the text after all."""
        return self._stream.flush()

    def usage(self, prompt: int) -> Usage:
        """Tokens of the prompt, and those that were told."""
        return Usage(prompt, self._count)

    def timings(self) -> Timings:
        """How long it took."""
        span, count = self._last - self._first, self._count
        return Timings(
            ttft_s=round(self._first - self._started, 4),
            tokens_per_s=round((count - 1) / span, 2) if count > 1 and span > 0 else 0.0,
            total_s=round(self._last - self._started, 4),
        )
