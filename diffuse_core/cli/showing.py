"""Source on the screen: the first as it comes, then the others, and what is told beside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from diffuse_core.cli.alternatives import take_all
from diffuse_core.cli.answer import end_line, show_text
from diffuse_core.cli.aside import print_audits, print_logprobs, print_losses, print_timings
from diffuse_core.domain.plain_text import clean

if TYPE_CHECKING:
    from diffuse_core.cli.answer import Answer, Source


class Showing:
    """Prints the answers to one question.

    Args:
        answers: What is to be asked; each holds its answer, or why there is none, afterwards.
        timings: Whether to tell timings and routes.
    """

    def __init__(self, answers: list[Answer], *, timings: bool = False) -> None:
        self._answers = answers
        self._timings = timings
        self._headed = False
        self._ended = False

    async def run(self, client: Source) -> None:
        """Ask, and print. What breaks an answer off is its `error`, and not raised.

        Text that was shown before a cancellation is a whole line.
        """
        answers, first = self._answers, self._answers[0]
        if len(answers) > 1 and first.request.sampling.temperature == 0:
            click.echo("(at --temperature 0 all answers are the same)", err=True)
        try:
            await take_all(client, answers, self._show, self._complete)
        except asyncio.CancelledError:
            self.end()
            if first.finished is not None:
                print_audits(first)
            raise
        if first.finished is None:
            self._complete()
        self._aside(0)
        for at, answer in enumerate(answers[1:], 1):
            self._head(at)
            show_text(answer.text)
            self._end(answer)
            self._aside(at)

    def end(self) -> None:
        """End the line of the answer now, and show no more of it; nothing where it is complete."""
        if not self._ended and self._answers[0].finished is None:
            self._ended = True
            end_line(self._answers[0])

    def _show(self, text: str) -> None:
        if not self._ended:
            self._head(0)
            show_text(text)

    def _complete(self) -> None:
        if not self._ended:
            self._head(0)
            self._end(self._answers[0])

    def _head(self, at: int) -> None:
        """The heading of one of several answers, once; not before the first has a word to show."""
        count = len(self._answers)
        if count > 1 and not (at == 0 and self._headed):
            self._headed = True
            seed = self._answers[at].request.sampling.seed
            click.echo(f"--- {at + 1} of {count}, seed {seed} ---")

    def _end(self, answer: Answer) -> None:
        """End the answer's line, and tell its timings or losses."""
        end_line(answer)
        (print_timings if self._timings else print_losses)(answer)

    def _aside(self, at: int) -> None:
        answer = self._answers[at]
        print_logprobs(answer)
        print_audits(answer)
        if len(self._answers) > 1 and answer.error is not None:
            click.echo(f"({at + 1} broke off: {clean(str(answer.error))})", err=True)


def raise_first(answers: list[Answer]) -> None:
    """Raise what broke off the first of those that did not come to their ends, if one did not."""
    for answer in answers:
        if answer.error is not None:
            raise answer.error
