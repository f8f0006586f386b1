"""A question of a chat, from the line that was typed to the turn that is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.alternatives import alternatives
from diffuse_core.cli.asking_options import asked
from diffuse_core.cli.chat.conversation import Conversation, Turn
from diffuse_core.cli.showing import Showing
from diffuse_core.domain.plain_text import clean_line
from diffuse_core.errors import DiffuseError, PromptTooLong

if TYPE_CHECKING:
    from diffuse_core.cli.answer import Answer
    from diffuse_core.domain.context import Context
    from diffuse_core.domain.view import ModelView, NetworkView
    from diffuse_core.ports import Answers, Clock
    from diffuse_core.text_files import TextFile

_FENCE = "`" * 3


def say(text: str) -> None:
    """A line beside the conversation."""
    click.echo(text, err=True)


class Asker:
    """Asks questions on a network, each with what was said before it.

    Args:
        given: The options, as they are now; `model` is a name on the network.
        network: Who is asked.
        clock: When turns were.
    """

    def __init__(self, given: dict[str, Any], network: Answers, clock: Clock) -> None:
        self.given = given
        self.view: NetworkView | None = None
        """The network as it was seen last."""
        self.conversation = Conversation(given["system"] or "")
        self.files: list[TextFile] = []
        """What goes with the next question."""
        self.unanswered: str | None = None
        """The last question, if nothing came of it."""
        self.answer: Answer | None = None
        """The last answer, also of one that broke off."""
        self._network = network
        self._clock = clock
        self._showing: Showing | None = None
        self._question = ""
        self._typed = ("", "")
        """The last question that was typed: whole, and as it was typed."""
        self._told_left_out = 0

    async def ask(self, typed: str) -> None:
        """Ask, print the answer and keep both.

        Raises:
            DiffuseError: what broke it off, or one of several answers; printed was what came.
        """
        whole = "".join((typed, *map(_attached, self.files)))
        self._typed = whole, typed
        await self.ask_whole(whole)

    async def ask_whole(self, question: str) -> None:
        """As `ask`, with files in the text already."""
        self._question = self.unanswered = question
        self.answer = None
        await self.look()
        answers = await self._fitted(question)
        self._keep()
        for answer in answers:
            if answer.error is not None:
                raise answer.error

    def as_typed(self, question: str) -> str:
        """A question without the files that went with it, where that is still known."""
        whole, typed = self._typed
        return typed if question == whole else question

    async def retry(self) -> None:
        """Ask the last question once more; its turn stays where no answer comes.

        Raises:
            DiffuseError: as `ask`; or nothing was asked yet.
        """
        if self.unanswered is not None:
            return await self.ask_whole(self.unanswered)
        before = self.conversation.undo()
        if before is None:
            return say("(nothing was asked yet)")
        given = self.given
        if given["temperature"] == 0 or given["seed"] is not None:
            why = "temperature 0" if given["temperature"] == 0 else f"seed {given['seed']}"
            say(f"(at {why} the answer comes out the same; see /set)")
        try:
            await self.ask_whole(before.question)
        finally:
            if self.unanswered is not None:
                self.conversation.add(before)
                self.unanswered = None
        return None

    def stop(self) -> None:
        """The answer is being stopped: end its line, keep what there is of it."""
        if self._showing is not None:
            self._showing.end()
            self._keep()

    async def look(self) -> NetworkView:
        """The network as it is now.

        Raises:
            Unreachable: no node answers.
        """
        self.view = await self._network.view()
        return self.view

    async def _fitted(self, question: str) -> list[Answer]:
        """Ask with as much of the conversation as there is room for."""
        model, most = self.model_view(), self.given["max_tokens"]
        positions = None if model is None else model.context
        sent = self.conversation.asking(question, positions, most)
        while True:
            answers = await self._run(sent)
            fewer = None
            if isinstance(answers[0].error, PromptTooLong):
                fewer = self.conversation.shorter(question, sent)
            if fewer is None:
                return answers
            sent = fewer

    async def _run(self, sent: Context) -> list[Answer]:
        request = asked(self.given, self.given["model"], sent.messages)
        answers = alternatives(request, self.given["count"])
        self.answer = answers[0]
        self._showing = Showing(answers, timings=self.given["timings"])
        if sent.left_out > self._told_left_out:
            turns = "turn does" if sent.left_out == 1 else f"{sent.left_out} turns do"
            say(f"(the oldest {turns} not fit any more: the model is not told of it)")
        self._told_left_out = sent.left_out
        try:
            await self._showing.run(self._network)
        finally:
            self._showing = None
        self.conversation.measured(sent.messages, answers[0].prompt_tokens)
        return answers

    def model_view(self) -> ModelView | None:
        """The model that is asked, as far as it is known."""
        from diffuse_core.domain.selection import find_model

        if self.view is None:
            return None
        try:
            return find_model(self.view, self.given["model"])
        except DiffuseError:
            return None

    def _keep(self) -> None:
        """Keep the turn, if there is something of an answer."""
        answer = self.answer
        if answer is None or self.unanswered is None:
            return
        if answer.finished is None and (answer.error is not None or not answer.text):
            return
        state = "done" if answer.finished is not None else "stopped"
        turn = Turn(
            self._question,
            answer.text,
            "stopped" if state == "stopped" else "done",
            clean_line(answer.request.model),
            self._clock.wall(),
        )
        self.conversation.add(turn)
        self.unanswered = None
        self.files.clear()


def _attached(file: TextFile) -> str:
    """What a model is given of a file: its name, and its text as a block of code."""
    fence = _FENCE
    while fence in file.text:
        fence += "`"
    return f"\n\n{clean_line(file.name)}:\n{fence}\n{file.text.rstrip()}\n{fence}\n"
