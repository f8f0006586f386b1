"""Rows come in: what a Stage of one Session is sent, checked and cut into passes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from diffuse_core.domain.guesser import Guesser
from diffuse_core.domain.kept import REGROUPED_ROWS
from diffuse_core.domain.rms_band import RmsBand
from diffuse_core.domain.shapes import HIDDEN_TYPE, ITEM_BYTES
from diffuse_core.domain.spots import TakenSpots
from diffuse_core.domain.token_line import TokenLine, Tokens
from diffuse_core.errors import Refused
from diffuse_core.model_ports import StageStep, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.examiner import Examiner
    from diffuse_core.domain.messages import ForwardHidden
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.domain.rms_band import Learned
    from diffuse_core.domain.session import Group, StageSession
    from diffuse_core.model_ports import TokenChooser
    from diffuse_core.ports import Clock
    from diffuse_core.services.lane import Lane
    from diffuse_core.services.pass_clock import PassClock
    from diffuse_core.services.scheduler import Scheduler


class Intake:
    """What comes for one Session goes into its lane."""

    def __init__(
        self,
        model: ModelRef,
        state: StageSession,
        chooser: TokenChooser,
        scheduler: Scheduler,
        lane: Lane,
        clock: Clock,
        times: PassClock | None,
        learned: Learned,
        spots: Sequence[int],
        examiner: Examiner | None,
    ) -> None:
        """`examiner` looks at logits in place of the `chooser`, in an audit."""
        self._examiner = examiner
        self.taken = TakenSpots(spots, model.shape.hidden, ITEM_BYTES[model.contract])
        """A few numbers of each row that came in."""
        self._band = RmsBand(learned)
        self._contract = model.contract
        self._hidden = model.shape.hidden
        self._vocab = model.shape.vocab
        self._row_bytes = model.shape.hidden * ITEM_BYTES[model.contract]
        self._state = state
        self._chooser = chooser
        self._scheduler = scheduler
        self._lane = lane
        self._clock = clock
        self._times = times
        self.line = TokenLine()
        self.guesser = Guesser()

    def feed(self, tokens: Tokens) -> None:
        """Have tokens of the Client run: a prompt, or what was drawn before a Stage was lost.

        Raises:
            Refused: they are not the next ones, or too many.
        """
        run = self.line.feed(tokens)
        self.guesser.fed(run, self._state.prompt)
        self._take_tokens(run, (), b"")
        early = self.line.early()
        if early is not None:
            self.ring(early)

    def ring(self, tokens: Tokens, marks: bytes = b"") -> None:
        """Have tokens run that the last Stage drew; those that have rows already are ignored.

        Raises:
            Refused: they cannot be.
        """
        if max(tokens.tokens) >= self._vocab:
            # Not the executor's to find: this Stage would be to blame for it.
            raise Refused(f"a token id came round, and the model has {self._vocab}, from 0 on")
        guessed = len(self.line.guesses)
        new, right = self.line.ring(tokens)
        if new is None:
            return
        most = min(self._state.alone - 1, self._state.budget - new.end)
        drafts = self.guesser.after(tokens, guessed, right, most, self._clock.monotonic())
        self.line.guess(drafts)
        if drafts and len(new.tokens) > 1:
            self._take_tokens(Tokens(new.position, new.tokens[:-1]), (), b"")
            new = Tokens(new.end - 1, new.tokens[-1:])
        self._take_tokens(new, drafts, marks)

    def take_hidden(self, message: ForwardHidden, body: memoryview) -> None:
        """Have hidden states run.

        Raises:
            Refused: they do not fit the model or the Session.
        """
        most = max(self._state.piece, REGROUPED_ROWS)
        if message.rows * self._row_bytes != len(body) or message.rows > most:
            raise Refused(
                f"hidden states of {(message.rows, self._hidden)} in {len(body)} bytes do not fit"
            )
        groups = self._state.take_rows(message.position, message.rows, message.drafts)
        self._note_arrival(len(groups), message.marks)
        self.taken.take(message.position, message.rows, body)
        for group in groups:
            at = (group.position - message.position) * self._row_bytes
            data = body[at : at + group.rows * self._row_bytes]
            shape = (group.rows, self._hidden)
            self._submit(group, hidden=Tensor(HIDDEN_TYPE[self._contract], shape, data))

    def settle(self, most: int | None = None) -> int:
        """Forget rows that had no pass, guessed ones, those from `most` on; how many are held."""
        held = self._state.settle(most)
        self.line.settle(held)
        self.guesser.settle()
        if self._times is not None:
            self._times.settle()
        return held

    def _take_tokens(self, run: Tokens, drafts: tuple[int, ...], marks: bytes) -> None:
        tokens = run.tokens + drafts
        groups = self._state.take_rows(run.position, len(tokens), drafts)
        self._note_arrival(len(groups), marks)
        for group in groups:
            at = group.position - run.position
            self._submit(group, tokens=tokens[at : at + group.rows])

    def _note_arrival(self, groups: int, marks: bytes) -> None:
        if self._times is not None:
            self._times.arrived(groups, marks)

    def _submit(
        self,
        group: Group,
        *,
        tokens: tuple[int, ...] | None = None,
        hidden: Tensor | None = None,
    ) -> None:
        state = self._state
        chooser, drafts = self._to_draw(group)
        step = StageStep(
            session=state.name,
            part=state.part,
            position=group.position,
            tokens=tokens,
            hidden=hidden,
            alone=group.position >= state.prompt,
            chooser=chooser,
            drafts=drafts,
            check=None if state.before is None else partial(self._band.check, state.before.node),
        )
        self._scheduler.submit(self._lane, step)

    def _to_draw(self, group: Group) -> tuple[TokenChooser | None, tuple[int, ...]]:
        """Who is to see the logits of a group, and which of its tokens were guessed."""
        state = self._state
        if self._examiner is not None:
            wanted = group.end >= state.prompt
            return (self._examiner, self._examiner.between(group)) if wanted else (None, ())
        if state.is_last and group.right == state.draws.next and state.draws.finish is None:
            return self._chooser, group.drafts
        return None, ()
