"""The Session as one Stage sees it: which rows may come next, when tokens may flow, when it ends.

Pure bookkeeping. Rows are positions of the sequence; a Stage runs them strictly in order, so what
arrives twice, out of order or beyond the budget is refused before anything is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from diffuse_core.domain.decoding import FinishReason
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.messages import OpenSession
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.domain.slices import Slice

MAX_SESSIONS = 64

PREFILL_ROWS = 256
"""Into chunks of so many rows the first Stage cuts a prompt.

The same on every Stage and under any load: where a prompt is cut may show in the last bits.
"""

WINDOW_ROWS = 4 * PREFILL_ROWS
"""Rows that a Stage may send the next one ahead of what that one has run.

So a slow Stage holds few hidden states, and a long prompt waits where it is ids.
"""


@dataclass(frozen=True)
class StageTerms:
    """What a Stage can offer at this moment; KV figures in bytes."""

    own: NodeId
    model: ModelRef
    held: Slice
    kv_used: int
    kv_budget: int
    sessions: int
    leaving: bool = False


def admit(message: OpenSession, terms: StageTerms) -> int:
    """Decide on a Session before anything is kept for it; the bytes of KV it will need.

    Raises:
        Refused: with the reason.
    """
    model = terms.model
    _check_route(message, model.shape.layers)
    hop = message.route[message.index]
    if message.fingerprint != model.fingerprint:
        raise Refused(f"this host holds {model.id} with other weights or contract", "model")
    if hop.node != terms.own or not terms.held.contains(hop.part):
        raise Refused(f"this host holds layers {terms.held}, not {hop.part}", "slice")
    if message.budget > model.shape.context:
        raise Refused(
            f"{message.budget} positions pass the model's {model.shape.context}", "context"
        )
    if terms.leaving:
        raise Refused("this host is leaving", "leaving")
    if terms.sessions >= MAX_SESSIONS:
        raise Refused(f"{MAX_SESSIONS} sessions run here already", "busy")
    per_position = len(hop.part) * model.shape.kv_bytes
    need = per_position * message.budget
    if need > terms.kv_budget:
        raise Refused(
            f"{message.budget} positions (prompt and answer) are more than this host ever has "
            f"room for: at most {terms.kv_budget // max(1, per_position)}",
            "memory",
        )
    free = max(0, terms.kv_budget - terms.kv_used)
    if need > free:
        raise Refused(
            f"{message.budget} positions need {need / 2**20:.1f} MiB of KV; "
            f"{free / 2**20:.1f} of {terms.kv_budget / 2**20:.1f} MiB are free",
            "memory",
        )
    return need


def _check_route(message: OpenSession, layers: int) -> None:
    edge = 0
    for hop in message.route:
        if hop.part.start != edge:
            raise Refused(f"the route jumps from layer {edge} to {hop.part.start}")
        edge = hop.part.end
    if edge != layers:
        raise Refused(f"the route ends at layer {edge} of {layers}")
    if len({hop.node for hop in message.route}) != len(message.route):
        raise Refused("the route visits a node twice")
    if message.index >= len(message.route):
        raise Refused("the stage index lies outside the route")
    if message.prompt >= message.budget:
        raise Refused("the budget leaves no position for a token")


class StageSession:
    """One Session on one Stage: rows received, run and sent on, credits left, tokens drawn."""

    def __init__(self, message: OpenSession) -> None:
        self.id = message.session
        self.decoding = message.decoding
        self.budget = message.budget
        self.prompt = message.prompt
        hop = message.route[message.index]
        self.part: Slice = hop.part
        self.is_first = message.index == 0
        self.is_last = message.index == len(message.route) - 1
        self.before = None if self.is_first else message.route[message.index - 1]
        self.after = None if self.is_last else message.route[message.index + 1]
        self.ring = message.route[0]
        self.tail = message.route[-1]
        self.received = 0
        self.ran = 0
        self.sent = 0
        self.drawn = 0
        self._told = 0
        self._ran_after = 0
        self._credits = message.credits
        self._held: int | None = None

    def take_rows(self, position: int, rows: int) -> None:
        """Account for rows that arrived.

        Raises:
            Refused: they are not the next ones, or pass the budget.
        """
        if position != self.received:
            raise Refused(f"rows for position {position} came where {self.received} was next")
        if position + rows > self.budget:
            raise Refused(f"{position + rows} positions pass the budget of {self.budget}")
        if not self.is_first and self.received + rows - self.ran > WINDOW_ROWS:
            raise Refused(f"more than {WINDOW_ROWS} rows wait at this stage")
        self.received += rows

    def count_ran(self, rows: int) -> int:
        """Account for rows that had their pass; how many to tell the Stage before, or 0."""
        self.ran += rows
        untold = self.ran - self._told
        if self.is_first or untold < PREFILL_ROWS:
            return 0
        self._told = self.ran
        return untold

    def may_send(self, rows: int) -> bool:
        """Whether the next Stage has room for `rows` more; if so they count as sent."""
        if self.sent + rows - self._ran_after > WINDOW_ROWS:
            return False
        self.sent += rows
        return True

    def count_ran_after(self, rows: int) -> None:
        """Account for rows that the next Stage says it ran.

        Raises:
            Refused: it was never sent so many.
        """
        if self._ran_after + rows > self.sent:
            raise Refused("the stage says that it ran more rows than it was sent")
        self._ran_after += rows

    def draw(self, token: int) -> FinishReason | None:
        """Account for a token the last Stage drew; why the generation ends with it, or None."""
        self.drawn += 1
        self._credits -= 1
        if token in self.decoding.stop_ids:
            return "stop"
        if self.drawn >= self.decoding.max_tokens or self.prompt + self.drawn >= self.budget:
            return "length"
        return None

    def may_continue(self, token: int) -> bool:
        """Whether `token` may go round the ring now; otherwise it is held until credit comes."""
        if self._credits > 0:
            return True
        self._held = token
        return False

    def grant(self, tokens: int) -> int | None:
        """Add credit; the token that was held back and may go on now, if there is one."""
        self._credits += tokens
        if self._credits > 0 and self._held is not None:
            held, self._held = self._held, None
            return held
        return None
