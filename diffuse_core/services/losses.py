"""How a generation is told that a Stage was lost, or would not take the Session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.plain_text import shorten
from diffuse_core.errors import RefusalReason, Refused, StagesLost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diffuse_core.domain.messages import Hop

How = Literal["undialled", "unanswered", "ended", "silent", "said"]
"""How a Stage was lost: it could not be dialled; nobody answered a dial in time, which goes on; a
link to it ended, here or at another Stage; it stopped answering; or it said itself that it failed,
or did what it must not.
"""

MOST_CAUSE = 160
"""Characters of what a Stage says that are told as the cause."""


class StageBlamed(StagesLost):
    """A Stage failed or did not answer.

    `node` is whom to blame, `part` its layers; `why` says what happened, which may be another's
    words. `accuser` is the Stage that said so, None when we saw it ourselves; then
    `relayed_through` is the Sentinel between.
    """

    def __init__(
        self,
        hop: Hop,
        why: str,
        how: How,
        reason: RefusalReason = "lost",
        *,
        accuser: NodeId | None = None,
        relayed_through: NodeId | None = None,
    ) -> None:
        self.node = NodeId(hop.node)
        self.part = hop.part
        self.why = why
        self.how = how
        self.reason: RefusalReason = reason
        self.accuser = accuser
        self.relayed_through = relayed_through
        super().__init__(f"{self.name} failed: {why}")

    @property
    def name(self) -> str:
        """The Stage, in words."""
        return f"stage {short_text(self.node)} (layers {self.part})"

    @property
    def cause(self) -> str:
        """Why, in a few words: what there is to do about it is in `why`."""
        if self.how in ("undialled", "unanswered"):
            return "it cannot be reached" if self.how == "undialled" else "it does not answer"
        if self.accuser is not None and self.reason == "lost":
            return f"stage {short_text(self.accuser)} lost its link to it"
        return shorten(self.why, MOST_CAUSE)

    @property
    def was_lost(self) -> str:
        """That it was lost, in words."""
        return f"{self.name} was lost ({self.cause})"


class StageDeclined(Refused):
    """A Stage refused the Session; `node` is the one to avoid for this generation."""

    def __init__(self, node: NodeId, message: str, reason: RefusalReason) -> None:
        super().__init__(message, reason)
        self.node = node


Problem = StageBlamed | StageDeclined


def passed_over_text(problem: Problem) -> str:
    """What is told of a Stage that was to run, and did not come to it."""
    if isinstance(problem, StageBlamed):
        return f"{problem.name} was passed over ({problem.cause})"
    return shorten(str(problem), MOST_CAUSE)


def went_on_text(lost: StageBlamed, taken: Iterable[NodeId], seconds: float) -> str:
    """What is told of a loss once the answer goes on: on which nodes, how many seconds later."""
    names = ", ".join(map(short_text, taken))
    return f"{lost.was_lost}; went on with {names} after {seconds:.1f} s"
