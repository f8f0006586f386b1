"""The Session as one Stage sees it: which rows may come next, which of them are known right.

Pure bookkeeping. Rows are positions of the sequence; a Stage runs them strictly in order, so what
arrives twice, out of order or beyond the budget is refused before anything is computed. The last
rows of a group may be of guessed tokens: rows that come next may begin at any of those, which is
what makes the rest of them void.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.domain.draws import Draws
from diffuse_core.domain.wire import NAME_BYTES
from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.messages import Hop, OpenSession, Reroute
    from diffuse_core.domain.slices import Slice

PREFILL_ROWS = 256
"""Into chunks of so many rows the first Stage cuts a prompt.

The same on every Stage and under any load: where a prompt is cut may show in the last bits.
"""

WINDOW_ROWS = 4 * PREFILL_ROWS
"""Rows that a Stage may send the next one ahead of what that one has run.

So a slow Stage holds few hidden states, and a long prompt waits where it is ids.
"""

STRAY_PIECES = 16
"""Pieces of a prompt that may come beside those it is to be cut into: each is kept by itself."""


def whole_piece(most: int) -> int:
    """A piece of at most so many rows that larger ones, and what Clients send, are made of."""
    return 1 << max(0, most.bit_length() - 1)


def common_name(client: bytes, session: bytes) -> bytes:
    """What Stages call a Session of `client` among each other; NAME_BYTES long.

    A Client names its Session by an id, which it may choose as it likes. So others may choose the
    same, by chance or because they heard of it; their Sessions have another name.
    """
    said = hashlib.blake2b(client, digest_size=NAME_BYTES, person=b"diffuse session")
    said.update(session)
    return said.digest()


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that have one pass, from `position` on; the last of them are of guessed `drafts`."""

    position: int
    rows: int
    drafts: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        """The position after its rows."""
        return self.position + self.rows

    @property
    def right(self) -> int:
        """The position up to which its rows are no guesses."""
        return self.end - len(self.drafts)


class StageSession:
    """One Session on one Stage: rows received, run and sent on, and its place in the Route."""

    def __init__(
        self,
        message: OpenSession,
        alone: int = 1,
        piece: int = PREFILL_ROWS,
        *,
        client: bytes = b"",
    ) -> None:
        """Decode rows run at most `alone` at a time, prompts in pieces of `piece` rows."""
        self.id = message.session
        """Between the Client and this Stage."""
        self.name = common_name(client, message.session)
        """Between Stages, and for the executor."""
        self.decoding = message.decoding
        self.budget = message.budget
        self.prompt = message.prompt
        self.audit = message.audit
        self.part: Slice = message.route[message.index].part
        self.alone = alone
        self.piece = piece
        self.draws = Draws(message)
        self._pieces = 0
        self.received = 0
        self.ran = 0
        self.sent = 0
        self.pending: deque[Group] = deque()
        """What arrived and had no pass yet, as it is cut for passes."""
        self._right = 0
        self._ran_right = 0
        self._follow(message.epoch, message.route, message.index)

    def _follow(self, epoch: int, route: Sequence[Hop], index: int) -> None:
        self.epoch = epoch
        self.index = index
        self.is_first = index == 0
        self.is_last = index == len(route) - 1
        self.before = None if self.is_first else route[index - 1]
        self.after = None if self.is_last else route[index + 1]
        self.ring = route[0]
        self.tail = route[-1]
        # Of this Route, guessed rows counted as often as they come.
        self._taken = self._run = self._told = self._given = self._run_after = 0

    @property
    def drawn(self) -> int:
        """Tokens drawn so far, as far as this Stage knows: the last one knows."""
        return self.draws.count

    # --- rows -------------------------------------------------------------------------

    def take_rows(self, position: int, rows: int, drafts: tuple[int, ...] = ()) -> list[Group]:
        """Account for rows that arrived; how they are to be cut for passes.

        Raises:
            Refused: they are not the next ones, pass the budget, or cannot be.
        """
        self._check(Group(position, rows, drafts))
        groups = [Group(position, rows, drafts)] if drafts else self._cut(position, rows)
        self._check_crowd(position, len(groups))
        if position < self.prompt:
            self._pieces += len(groups)
        self._taken += rows
        self.received = position + rows
        self._right = self.received - len(drafts)
        self.pending.extend(groups)
        return groups

    def _check(self, group: Group) -> None:
        at, end = group.position, group.end
        if not self._right <= at <= self.received:
            raise Refused(f"rows for position {at} came where {self._right} was next")
        if end > self.budget:
            raise Refused(f"{end} positions pass the budget of {self.budget}")
        if at < self.prompt < end:
            raise Refused("rows of the prompt and of the answer came together")
        if group.drafts:
            self._check_drafts(group)
        if at < self.prompt:
            self._check_piece(group)
        if self.is_last and group.right > self.prompt + self.drawn:
            raise Refused("rows came for tokens that were not drawn")
        if not self.is_first and self._taken + group.rows - self._run > WINDOW_ROWS:
            raise Refused(f"more than {WINDOW_ROWS} rows wait at this stage")

    def _check_piece(self, group: Group) -> None:
        """A Client may cut its prompt as it likes, but nobody else.

        Who takes the place of the Stage before sends whole pieces; here must be no half of one.
        """
        at, due = group.position, min(self.piece, self.prompt - group.position)
        if not self.is_first and (at % self.piece or group.rows != due):
            raise Refused(
                f"{group.rows} rows of the prompt came from position {at} on; pieces have "
                f"{self.piece} rows"
            )

    def _check_crowd(self, position: int, more: int) -> None:
        """Each piece of a prompt has a pass of its own, and is kept by itself."""
        most = -(-self.prompt // self.piece) + STRAY_PIECES
        if position < self.prompt and self._pieces + more > most:
            raise Refused(f"a prompt of {self.prompt} rows came in more than {most} pieces")

    def _check_drafts(self, group: Group) -> None:
        if group.position < self.prompt or group.right != group.position + 1:
            raise Refused("guessed rows came, and not after one row of the answer")
        if group.rows > self.alone:
            raise Refused(
                f"{group.rows} rows came to be run as if alone; this stage runs {self.alone}"
            )

    def _cut(self, position: int, rows: int) -> list[Group]:
        end, groups = position + rows, []
        if position < self.prompt and not self.is_first:
            return [Group(position, rows)]
        while position < end:
            # Pieces of a prompt are counted from its first row on, however they arrive.
            in_prompt = position < self.prompt
            most = self.piece - position % self.piece if in_prompt else self.alone
            groups.append(Group(position, min(most, end - position)))
            position += groups[-1].rows
        return groups

    def count_ran(self) -> Group:
        """Account for the next group, which had its pass."""
        group = self.pending.popleft()
        self._run += group.rows
        self.ran, self._ran_right = group.end, group.right
        return group

    def to_tell(self) -> int:
        """How many rows the Stage before is to be told that they had their pass; 0: none yet."""
        untold = self._run - self._told
        if self.is_first or untold < PREFILL_ROWS:
            return 0
        self._told = self._run
        return untold

    def may_send(self, rows: int) -> bool:
        """Whether the next Stage has room for `rows` more; if so they count as sent."""
        if self._given + rows - self._run_after > WINDOW_ROWS:
            return False
        self._given += rows
        return True

    def count_ran_after(self, rows: int) -> None:
        """Account for rows that the next Stage says it ran.

        Raises:
            Refused: it was never sent so many.
        """
        if self._run_after + rows > self._given:
            raise Refused("the stage says that it ran more rows than it was sent")
        self._run_after += rows

    # --- what holds whatever comes next -------------------------------------------------

    @property
    def known(self) -> tuple[int, int, int]:
        """Rows received, run and sent on, without those that are guessed."""
        right = max(self._right, self._drawn_right())
        ran = self._ran_known()
        return min(self.received, right), ran, min(self.sent, ran)

    def _ran_known(self) -> int:
        if self.pending:
            # What arrived after guesses tells how many of them were right.
            return min(self.ran, self.pending[0].position)
        return min(self.ran, max(self._ran_right, self._drawn_right()))

    def _drawn_right(self) -> int:
        """Up to which row the draws of the last Stage tell that guesses were right."""
        return self.prompt + self.drawn - 1 if self.is_last and self.drawn else 0

    def settle(self, most: int | None = None) -> int:
        """Forget rows that had no pass, guessed ones, those from `most` on; how many are held.

        Only when no pass is under way.
        """
        held = self._ran_known() if most is None else min(self._ran_known(), most)
        self._pieces -= sum(group.position < self.prompt for group in self.pending)
        self.pending.clear()
        self.received = self.ran = self._right = self._ran_right = held
        self.sent = min(self.sent, held)
        return held

    def check_reroute(self, message: Reroute, own: NodeId) -> None:
        """See that a Route leaves this Stage its part; it is a Route otherwise.

        Raises:
            Refused: it does not, or it cannot be for this Session.
        """
        hop = message.route[message.index]
        if hop.node != own or hop.part != self.part:
            raise Refused(f"the session runs layers {self.part} here, not {hop.part}")
        if self.prompt + message.drawn > self.budget:
            raise Refused("more tokens were drawn than the budget has positions for")

    def reroute(self, message: Reroute) -> None:
        """Follow another Route from now on; nothing waits any more (settle)."""
        self._follow(message.epoch, message.route, message.index)
