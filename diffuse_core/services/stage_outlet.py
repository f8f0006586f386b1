"""What the passes of one Session gave goes on: to the next Stage, the ring and the Client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.kept import Kept, Piece
from diffuse_core.domain.messages import ForwardHidden, ForwardTokens, RowsRun
from diffuse_core.domain.shapes import ITEM_BYTES
from diffuse_core.domain.spots import pick, widened
from diffuse_core.domain.token_line import Tokens
from diffuse_core.errors import ChannelClosed, Refused, Unreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.examiner import Examiner
    from diffuse_core.domain.messages import TokensDrawn
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.domain.session import StageSession
    from diffuse_core.errors import RefusalReason
    from diffuse_core.model_ports import StageResult
    from diffuse_core.services.links import Link
    from diffuse_core.services.pass_clock import PassClock
    from diffuse_core.services.stage_intake import Intake


HEAD_BYTES = 4096
"""What goes before hidden states, and tokens without their log-probabilities, take less."""


class NeighbourLost(Unreachable):
    """Nothing can be sent to the next Stage of the ring; "invalid" when that is its own fault."""

    def __init__(self, message: str, reason: RefusalReason = "lost") -> None:
        super().__init__(message)
        self.reason: RefusalReason = reason


class Outlet:
    """Sends on what was computed, while it may; the rest is kept.

    Everything that was computed is noted before anything is sent, so that sending may be cut off
    anywhere and taken up again. What a token waits for is sent `at_once`, in the very call that
    brings what its pass gave, wherever nothing has to be waited for; `flow` does the rest.
    """

    def __init__(
        self,
        model: ModelRef,
        state: StageSession,
        intake: Intake,
        client: Link,
        times: PassClock | None,
    ) -> None:
        self._contract = model.contract
        self._width = width = model.shape.hidden * ITEM_BYTES[model.contract]
        self.examiner: Examiner | None = None
        self._state = state
        self._intake = intake
        self._times = times
        self._kept = Kept(state.prompt, width)
        self._room = asyncio.Event()
        self._from = 0
        self._untold = 0
        self.client = client
        self.next: Link | None = None
        """The next Stage of the ring; None when there is but one Stage."""
        self.source: Link | None = None
        """Where rows came from last."""
        self.flowing = False

    def note(self, result: StageResult) -> None:
        """Account for what the next pass gave.

        Raises:
            Refused: the executor gave something else than was due.
        """
        state = self._state
        group = state.count_ran()
        if self._times is not None:
            self._times.ran(result.seconds)
        if state.is_last:
            if not state.audit:
                state.draws.add(result.drawn)
            return
        hidden = result.hidden
        if hidden is None or hidden.shape[0] != group.rows:
            raise Refused("the executor gave no hidden states for the next stage", "lost")
        self._kept.append(Piece(group.position, group.rows, hidden.data, group.drafts))
        # Guessed rows that were void are replaced; what the next Stage had is never sent.
        state.sent = min(state.sent, max(group.position, self._from))

    @property
    def kept_rows(self) -> int:
        """Rows that were given and are kept, guessed ones as well."""
        return self._kept.end

    def kept(self, position: int, end: int) -> Piece | None:
        """What to give again from row `position` on, at most up to `end`; None: nothing.

        Raises:
            Refused: that is in the middle of a piece of the prompt.
        """
        piece = self._kept.after(position)
        if piece is None or piece.end <= end:
            return piece
        data = piece.data[: (end - piece.position) * self._width]
        return Piece(piece.position, end - piece.position, data)

    def spots(self, position: int, rows: int, spots: Sequence[int]) -> bytes:
        """Numbers of rows that were given, as far as there are any; fp32.

        Of a last Stage in an audit those are what its examiner found.
        """
        if self._state.is_last:
            return b"" if self.examiner is None else self.examiner.tell(position, rows)
        item = ITEM_BYTES[self._contract]
        if not spots or max(spots) * item >= self._width:
            return b""
        taken = []
        while rows and (piece := self._kept.row_from(position)) is not None:
            count = min(rows, piece.rows)
            taken.append(pick(piece.data, count, self._width // item, item, spots))
            position, rows = position + count, rows - count
        return widened(b"".join(taken), item)

    def settle(self, held: int) -> None:
        """Only `held` rows are there."""
        self._kept.truncate(held)
        self._untold = 0

    def pause(self) -> None:
        """Send nothing on."""
        self.flowing = False
        self._room.set()

    def resume(self, position: int) -> None:
        """Send on from row `position`."""
        self._state.sent = self._from = position
        self.flowing = True

    def has_room(self) -> None:
        """The next Stage ran some rows."""
        self._room.set()

    def at_once(self, result: StageResult, *, soon: bool) -> bool:
        """Note what a pass gave, and send it on if nothing has to wait; whether all is sent.

        `soon`: together with what the pass gave others. Only while nothing waits to be sent.

        Raises:
            Refused: as `note`; or the ring cannot go on.
        """
        self.note(result)
        state = self._state
        done = self._tell_at_once(soon) if state.is_last else self._pass_on_at_once(soon)
        self._untold += state.to_tell()
        return done and not self._untold

    def _pass_on_at_once(self, soon: bool) -> bool:
        state = self._state
        if not self.flowing or self.next is None:
            return True
        try:
            piece = self._kept.after(state.sent)
        except Refused:
            return False
        if piece is None:
            return True
        if piece.end != self._kept.end or not self.next.idle(HEAD_BYTES + len(piece.data)):
            return False
        if not state.may_send(piece.rows):
            return False
        self.next.send_now(self._onward(piece), piece.data, soon=soon)
        return True

    def _tell_at_once(self, soon: bool) -> bool:
        if self.flowing and self.next is not None and not self.next.idle(HEAD_BYTES):
            return False
        try:
            message = self._around() if self.flowing else None
            if message is not None and self.next is not None:
                self.next.send_now(message, soon=soon)
        finally:
            told = self._tell_client_at_once()
        return told

    def _tell_client_at_once(self) -> bool:
        """After the ring, and never in its way: the Client waits for the words only."""
        draws = self._state.draws
        told = draws.to_tell()
        if told is None:
            return True
        if told.logprobs or not self.client.idle(HEAD_BYTES):
            return False
        self.client.send_now(self._timed(told), soon=True)
        draws.told(told)
        return draws.to_tell() is None

    async def flow(self) -> None:
        """Send on all that is there.

        Raises:
            NeighbourLost: the link to the next Stage of the ring ended, or that one asked for rows
                that cannot be sent.
            Refused: the ring cannot go on.
        """
        if self._state.is_last:
            await self._tell_drawn()
        else:
            await self._pass_on()
        untold, self._untold = self._untold + self._state.to_tell(), 0
        if untold and self.source is not None and not self.source.closed:
            try:
                await self.source.send(RowsRun(self._state.name, untold, self._state.epoch))
            except ChannelClosed:
                return  # Whoever looks after links hears of it as well.

    async def _pass_on(self) -> None:
        state = self._state
        while self.flowing and self.next is not None:
            try:
                piece = self._kept.after(state.sent)
            except Refused as error:
                # It said that it holds a part of what only comes as a whole.
                raise NeighbourLost(str(error), "invalid") from error
            if piece is None:
                return
            if not state.may_send(piece.rows):
                self._room.clear()
                await self._room.wait()
                continue
            try:
                await self.next.send(self._onward(piece), piece.data)
            except ChannelClosed as error:
                raise NeighbourLost(str(error)) from error

    def _onward(self, piece: Piece) -> ForwardHidden:
        """The message of a piece, which counts as sent."""
        state = self._state
        state.sent = piece.end
        # Only what is sent right after its pass has marks: the rest waited for other reasons.
        fresh = piece.end == self._kept.end
        marks = self._times.onward() if self._times is not None and fresh else b""
        return ForwardHidden(
            state.name, piece.position, piece.rows, piece.drafts, state.epoch, marks
        )

    async def _tell_drawn(self) -> None:
        """The ring first: it waits for the token, the Client only for the words."""
        try:
            if self.flowing:
                await self.go_round()
        except (Refused, NeighbourLost):
            await self.tell_client()
            raise
        await self.tell_client()

    async def go_round(self) -> None:
        """Send what was drawn to the first Stage, as far as there is credit.

        Raises:
            NeighbourLost: its link ended.
            Refused: it is this very Stage, and cannot run them.
        """
        message = self._around()
        if message is None or self.next is None:
            return
        try:
            await self.next.send(message)
        except ChannelClosed as error:
            raise NeighbourLost(str(error)) from error

    def _around(self) -> ForwardTokens | None:
        """What goes round the ring, and counts as gone; where this is all of it, it is there."""
        state = self._state
        run = state.draws.to_go_round()
        if run is None:
            return None
        marks = b"" if self._times is None else self._times.around()
        if self.next is None:
            self._intake.ring(Tokens(*run))
        return ForwardTokens(state.name, *run, state.epoch, marks)

    async def tell_client(self) -> None:
        """Tell it the tokens that it was not told of yet; they stay when its link has ended."""
        draws = self._state.draws
        while (message := draws.to_tell()) is not None:
            try:
                await self.client.send(self._timed(message))
            except ChannelClosed:
                return
            draws.told(message)

    def _timed(self, message: TokensDrawn) -> TokensDrawn:
        if self._times is None:
            return message
        return msgspec.structs.replace(message, marks=self._times.told())
