"""How a generation is told that a Stage was lost, or would not take the Session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.errors import RefusalReason, Refused, StagesLost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diffuse_core.domain.messages import Hop

How = Literal["undialled", "ended", "silent", "said"]
"""How a Stage was lost: it could not be dialled; a link to it ended, here or at another Stage; it
stopped answering; or it said itself that it failed, or did what it must not.
"""


class StageBlamed(StagesLost):
    """A Stage failed or did not answer.

    `node` is whom to blame, `part` its layers; `why` says what happened. `accuser` is the Stage
    that said so, None when we saw it ourselves; then `relayed_through` is the Sentinel between.
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
    def was_lost(self) -> str:
        """That it was lost, in words."""
        return f"{self.name} was lost ({self.why})"


class StageDeclined(Refused):
    """A Stage refused the Session; `node` is the one to avoid for this generation."""

    def __init__(self, node: NodeId, message: str, reason: RefusalReason) -> None:
        super().__init__(message, reason)
        self.node = node


Problem = StageBlamed | StageDeclined


def went_on_text(lost: StageBlamed, taken: Iterable[NodeId], seconds: float) -> str:
    """What is told of a loss once the answer goes on: on which nodes, how many seconds later."""
    names = ", ".join(map(short_text, taken))
    return f"{lost.was_lost}; went on with {names} after {seconds:.1f} s"
