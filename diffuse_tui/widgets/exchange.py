"""Questions and answers in turn: asking, asking anew, what waits, and what is kept of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from diffuse_tui.presenter.answerer import name_of
from diffuse_tui.presenter.talk import MAX_OTHERS, Talk
from diffuse_tui.widgets.keeping import Keeper, unix_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.view import (
        ChatMessage,
        GenerateEvent,
        GenerateRequest,
        ModelView,
    )
    from diffuse_tui.presenter.spans import Tone
    from diffuse_tui.presenter.waterfall import Times
    from diffuse_tui.widgets.answering import Answer, Outcome
    from diffuse_tui.widgets.conversation_view import ConversationView
    from diffuse_tui.widgets.prompt import Prompt

BUSY = "an answer is running; press Esc first"
EDITING = "the last question is being edited; Enter asks it anew, Esc leaves it"


class Exchange:
    """The conversation, and the one generation that may run in it.

    Args:
        view: Where the turns are shown.
        prompt: Where a question goes back to when nothing came of it.
        start: Has a generation run, told by its number.
        quiet: Called when the answer grows no more.
    """

    def __init__(
        self,
        view: ConversationView,
        prompt: Prompt,
        start: Callable[[int, GenerateRequest], None],
        quiet: Callable[[], None],
    ) -> None:
        self.talk = Talk()
        self.keeper = Keeper(lambda text: view.notify(text, severity="warning", markup=False))
        self.answer: Answer | None = None
        self.queued: str | None = None
        self.editing: int | None = None
        self._view = view
        self._prompt = prompt
        self._start = start
        self._quiet = quiet
        self._number = 0
        self._draft = ""
        self._before = self.talk
        self._times: dict[float, Times] = {}
        self._sent: tuple[ChatMessage, ...] = ()
        self._token_chars: float | None = None
        self._after: tuple[str, Tone] | None = None

    @property
    def stopping(self) -> bool:
        """Whether the answer that runs was told to stop."""
        return self.answer is not None and self.answer.stopping

    @property
    def text(self) -> str:
        """The newest answer that has text, "" when there is none."""
        if self.answer is not None and self.answer.text:
            return self.answer.text
        return next((turn.answer for turn in reversed(self.talk.turns) if turn.answer), "")

    @property
    def times(self) -> Times | None:
        """Where the newest turn's time went; None when it is of another run of the app."""
        last = self.talk.last
        return self._times.get(last.at) if last is not None else None

    def begin(self, talk: Talk) -> None:
        """Go on with another conversation; nothing may run."""
        self.talk = talk
        self.keeper.begin()
        self.queued = self.editing = None
        self._times.clear()
        self._view.show_from(0, talk.turns)

    # --- asking -----------------------------------------------------------------------------

    def why_not_now(self) -> str:
        """Why what was asked last cannot be changed now, "" when it can."""
        if self.answer is not None:
            return BUSY
        return EDITING if self.editing is not None else ""

    def send(self, question: str, model: ModelView) -> None:
        """Ask, in the place of the question that is edited if one is; or wait for the answer."""
        if self.answer is not None:
            self.queued = question
            return
        number, self.editing = self.editing, None
        self.ask(question, model, number)
        draft, self._draft = self._draft, ""
        if number is not None and draft:
            self._prompt.put(draft)

    def ask(self, question: str, model: ModelView, anew: int | None = None) -> None:
        """Ask; with `anew` in the place of the turn of that number and all after it."""
        # With the first question: they would be a part of the time to the first paint.
        from diffuse_core.domain.context import TOKEN_CHARS
        from diffuse_tui.presenter.asking import asking
        from diffuse_tui.widgets.answering import Answer

        name, now = name_of(model), unix_now()
        self._before = self.talk
        if anew is None:
            self.talk = self.talk.asked(question, name, now)
        else:
            self.talk = self.talk.asked_anew(anew, question, name, now)
        seed = int.from_bytes(os.urandom(4), "big")
        ask = asking(self.talk, model, seed, self._token_chars or TOKEN_CHARS)
        self._sent = ask.request.messages
        view = self._view.begin_turn(self.talk.turns[-1].number, question)
        self._number += 1
        self.answer = Answer(
            view, self._number, left_out=ask.left_out, seed=ask.seed, anew=anew is not None
        )
        self._times[now] = self.answer.times
        if len(self._times) > MAX_OTHERS + 1:
            del self._times[min(self._times)]
        self.keep()
        self._start(self._number, ask.request)

    def keep(self) -> None:
        """Write down the answer so far; of one that is made anew only once there is some."""
        answer = self.answer
        if answer is None or answer.outcome is not None or (answer.anew and not answer.text):
            return
        self.talk = self.talk.answered("streaming", answer.text)
        self.keeper.keep(self.talk)

    def leave(self) -> None:
        """The app ends: what there is of an answer is kept as stopped."""
        answer = self.answer
        if answer is not None and answer.outcome is None and (answer.text or not answer.anew):
            self.talk = self.talk.answered("stopped", answer.text, "■ stopped: the app was left")
            self.keeper.keep(self.talk)

    def arrived(self, number: int, event: GenerateEvent, at: float = 0.0) -> None:
        """Show what came; what comes late from an earlier generation is dropped."""
        answer = self.answer
        if answer is None or number != answer.number or answer.outcome is not None:
            return
        if (outcome := answer.take(event, at)) is not None:
            self._settle(answer, outcome)

    def ended(self, number: int) -> str | None:
        """The generation is over; the question that waits for it, to be sent or given back."""
        from diffuse_core.domain.context import token_chars

        answer = self.answer
        if answer is None or number != answer.number:
            return None
        if answer.outcome is None:
            self._settle(answer, answer.end())
        self.answer = None
        self._token_chars = token_chars(self._sent, answer.prompt_tokens) or self._token_chars
        self._view.settled()
        queued, self.queued = self.queued, None
        return queued

    def ending_note(self) -> tuple[str, Tone] | None:
        """What is to be said of how the last generation ended, once."""
        note, self._after = self._after, None
        return note

    def _settle(self, answer: Answer, outcome: Outcome) -> None:
        self._quiet()
        self.talk = self.talk.answered(outcome.state, answer.text, outcome.note)
        if answer.anew and not answer.text and outcome.state != "done":
            self._take_back(outcome)
            return
        self.keeper.keep(self.talk)
        if outcome.state == "failed":
            self.give_back(self.talk.turns[-1].question)
            if self.queued is not None:
                # It was asked in the belief that there would be an answer before it.
                self._after = ("what waited was not sent · ↑ recalls it", "warning")

    def _take_back(self, outcome: Outcome) -> None:
        """Nothing came of asking anew: what was there before is shown and kept again."""
        asked = self.talk.turns[-1]
        # What was set in the meantime stays.
        self.talk = self._before._replace(system=self.talk.system, params=self.talk.params)
        self._show_version(asked.number)
        if self.talk.turns[asked.number].question != asked.question and not self._prompt.text:
            # Sent again it takes the same place.
            self.editing = asked.number
            self.give_back(asked.question)
        why = "stopped" if outcome.state == "stopped" else f"not answered anew: {outcome.note}"
        self._after = (f"{why} · the earlier answer is back", "warning")

    def give_back(self, question: str) -> None:
        """Put a question that was not answered back where it can be sent again."""
        if not self._prompt.text:
            self._prompt.put_question(question)

    # --- changing what was asked ------------------------------------------------------------

    def edit_last(self) -> str:
        """Bring the last question back into the prompt; why not, when that cannot be."""
        last = self.talk.last
        if self.answer is not None:
            return BUSY
        if last is None:
            return "no question to edit yet"
        if self.editing is None:
            self.editing, self._draft = last.number, self._prompt.text
            self._prompt.put_question(last.question)
        self._prompt.focus()
        return ""

    def leave_edit(self) -> bool:
        """Leave the last question as it was; False when it is not being edited."""
        if self.editing is None:
            return False
        self.editing = None
        self._prompt.exchange(self._draft)
        return True

    def other_version(self) -> str:
        """Show what regenerating or editing replaced, each time an earlier one; "" or why not."""
        other = self.talk.other()
        if why := self.why_not_now():
            return why
        if other is None:
            return "nothing was answered anew or edited here"
        self.talk = other
        self._show_version(other.at)
        return ""

    def _show_version(self, first: int) -> None:
        self._view.show_from(first, self.talk.turns[first:])
        self.keeper.keep(self.talk)
