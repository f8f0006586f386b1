"""The state of a conversation: its turns, and what asking, asking anew and editing do to them.

Immutable: every operation gives another Talk. What regenerating or editing replaces is kept
beside the turns and can be shown again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.dialogue import Dialogue, KeptTurn
from diffuse_tui.presenter.parameters import Params
from diffuse_tui.presenter.titles import first_words

if TYPE_CHECKING:
    from diffuse_tui.presenter.dialogue import TurnState

MAX_OTHERS = 8
"""How many replaced versions of the end of a conversation are kept."""


class Talk(NamedTuple):
    """Turns in order, numbered from 0, and the settings for the next answer.

    `others` are earlier versions of all turns from number `at` on, the latest first.
    """

    turns: tuple[KeptTurn, ...] = ()
    system: str = ""
    params: Params = Params()
    at: int = 0
    others: tuple[tuple[KeptTurn, ...], ...] = ()

    @property
    def last(self) -> KeptTurn | None:
        """The newest turn."""
        return self.turns[-1] if self.turns else None

    def asked(self, question: str, model: str, at: float = 0.0) -> Talk:
        """One more turn, whose answer is to come. `at` is Unix time in seconds."""
        turn = KeptTurn(number=len(self.turns), question=question, model=model, at=at)
        return self._replace(turns=(*self.turns, turn))

    def asked_anew(self, number: int, question: str, model: str, at: float = 0.0) -> Talk:
        """Turn `number` and all after it give way to `question`, and are kept aside."""
        kept = self.others if number == self.at else ()
        others = (self.turns[number:], *kept)[:MAX_OTHERS]
        before = self._replace(turns=self.turns[:number], at=number, others=others)
        return before.asked(question, model, at)

    def other(self) -> Talk | None:
        """The version that was replaced last, this one kept in its place; None without one."""
        if not self.others:
            return None
        tail, rest = self.others[0], self.others[1:]
        return self._replace(
            turns=self.turns[: self.at] + tail, others=(*rest, self.turns[self.at :])
        )

    @property
    def version(self) -> tuple[int, int]:
        """Which version of the end is shown, the oldest being 1, and how many there are."""
        shown = self.turns[self.at :]
        older = sum(1 for tail in self.others if tail[0].at < shown[0].at) if shown else 0
        return older + 1, len(self.others) + 1

    def answered(self, state: TurnState, answer: str, note: str = "") -> Talk:
        """The newest turn with its answer so far, or as it ended."""
        turn = msgspec.structs.replace(self.turns[-1], state=state, answer=answer, note=note)
        return self._replace(turns=(*self.turns[:-1], turn))


def talk_of(dialogue: Dialogue) -> Talk:
    """A kept conversation, to be gone on with. An answer that still streamed was cut.

    Turns are numbered from 0 on, also where some could not be kept.
    """
    turns = tuple(
        msgspec.structs.replace(
            turn, number=number, state="cut" if turn.state == "streaming" else turn.state
        )
        for number, turn in enumerate(dialogue.turns)
    )
    return Talk(turns=turns, system=dialogue.system, params=dialogue.params)


def as_dialogue(talk: Talk, number: int, title: str) -> Dialogue | None:
    """What there is of a conversation, under the archive's `number`; None without a turn."""
    if not talk.turns:
        return None
    first, last = talk.turns[0], talk.turns[-1]
    return Dialogue(
        id=number,
        title=title or first_words(first.question),
        model=last.model,
        system=talk.system,
        params=talk.params,
        created_at=first.at,
        changed_at=last.at,
        turns=talk.turns,
    )


def settings_line(talk: Talk) -> str:
    """What the next answers are made with, where that is not as by default; "" when all is."""
    told = ["system prompt"] if talk.system else []
    if talk.params != Params():
        # Only now: it looks into the bounds of messages, which takes a moment.
        from diffuse_tui.presenter.settings_text import changed_text

        told.append(clean_line(changed_text(talk.params), 60))
    return " · ".join(told)


def was_cut(dialogue: Dialogue) -> bool:
    """Whether an app ended in the middle of the last answer."""
    # What streams is of an app that still runs.
    return bool(dialogue.turns) and dialogue.turns[-1].state == "cut"
