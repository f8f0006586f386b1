"""How large hidden states may be: a band for their root mean square (RMS), in ratios.

What is wrong by a factor shows in a row's RMS; what is wrong otherwise does not. The band is wide,
because honest rows differ a great deal, and a Stage that accuses honest ones would do more harm
than the faults that it misses. Measured with SmolLM2-135M at eleven boundaries, over prompts of
text, code, repeated tokens and delimiters: rows of one boundary lie within a factor of 9 to 15;
the row at position 0 has up to 250 times as much (it is an attention sink), and so has every row
of a prompt that repeats one token, the second row of one prompt in fifty, and some delimiter (Sun
et al., "Massive Activations in Large Language Models", 2024). So rows may be like those of the
Session before them (the body), or like its first row; and where others have seen more, like what
they have seen.

What other senders gave in other Sessions counts as well, once two of them agree: so one liar
neither makes rows of others look wrong, nor makes room for its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_RMS = 1e-9
"""Rows of nothing but zeros, or nearly, come of no model."""
MOST_RMS = 1e9
"""No model's hidden states are so large, in bf16 or fp32."""
MARGIN = 8.0
"""By which factor a row may lie outside what was seen."""
EARLY_MARGIN = 16.0
"""The same while few rows were seen."""
EARLY_ROWS = 16
WIDEST = 2.0**14
"""The rows of a Session span no larger factor, however slowly they drift."""
APART = 2.0**14
"""As far the rows of a Session may be from its first one, while there is no other."""
LIKE_FIRST = 1.25
"""Rows nearer to the first than that are sinks as it is, and tell nothing of the others."""
MOST_SENDERS = 32
ENOUGH_ROWS = 64
"""Of so many rows a sender's are known well enough to speak for or against others."""


class Span:
    """Between which numbers all lie that were seen."""

    __slots__ = ("count", "high", "low")

    def __init__(self) -> None:
        self.low, self.high, self.count = math.inf, 0.0, 0

    def add(self, number: float) -> None:
        """See one more."""
        self.low = min(self.low, number)
        self.high = max(self.high, number)
        self.count += 1

    def near(self, number: float, margin: float) -> bool:
        """Whether a number lies among them, or outside by no more than a factor."""
        return self.low <= number * margin and number <= self.high * margin


class Sender:
    """What one node gave at one boundary, in all Sessions."""

    __slots__ = ("body", "first")

    def __init__(self) -> None:
        self.first = Span()
        self.body = Span()

    @property
    def rows(self) -> int:
        """How many it gave."""
        return self.first.count + self.body.count

    def vouches(self, rms: float, *, first: bool) -> bool:
        """Whether it gave such rows."""
        return self.first.near(rms, MARGIN) or (not first and self.body.near(rms, MARGIN))


class Learned:
    """What the nodes gave that sent rows to this one, at one boundary between layers."""

    def __init__(self) -> None:
        self._senders: dict[bytes, Sender] = {}

    def of(self, node: bytes) -> Sender:
        """What a node gave; of those that gave least others take the place.

        Not of those that were not heard for longest: new ones cost nothing.
        """
        sender = self._senders.get(node)
        if sender is None:
            if len(self._senders) >= MOST_SENDERS:
                least = min(self._senders, key=lambda other: self._senders[other].rows)
                del self._senders[least]
            sender = self._senders[node] = Sender()
        return sender

    def opinion(self, node: bytes, rms: float, *, first: bool) -> bool | None:
        """Whether others than `node` gave such rows: two did, or none of two at least did.

        Nothing is said against rows like those that `node` itself gave before: whoever likes may
        be two others, and these must not speak against one that was here first.
        """
        known = [
            sender
            for other, sender in self._senders.items()
            if other != node and sender.body.count >= ENOUGH_ROWS
        ]
        if len(known) < 2:
            return None
        vouching = sum(sender.vouches(rms, first=first) for sender in known)
        own = self._senders.get(node)
        if own is not None and own.body.count >= ENOUGH_ROWS and own.vouches(rms, first=first):
            return vouching > 1 or None
        return vouching > 1 or (None if vouching else False)


class RmsBand:
    """The rows of one Session at one boundary; called from one thread."""

    def __init__(self, learned: Learned) -> None:
        self._learned = learned
        self._first = Span()
        self._body = Span()
        self._refused: tuple[bytes, int, float] | None = None

    def check(self, node: bytes, position: int, rms: Sequence[float]) -> None:
        """See that rows that `node` gave, from `position` on, can be; learn from them if so.

        Raises:
            Refused: a row cannot be; nothing of the others is learned then.
        """
        for row, one in enumerate(rms, position):
            if not self._may_be(node, row, one):
                self._refused = node, row, one
                raise Refused(
                    f"the hidden state at position {row} has an RMS of {one:.3g}, which those "
                    f"{self._known()}; the stage before is at fault"
                )
            self._note(row, one)
        sender = self._learned.of(node)
        for row, one in enumerate(rms, position):
            self._teach(sender, row, one)

    def _may_be(self, node: bytes, row: int, rms: float) -> bool:
        if not LEAST_RMS < rms < MOST_RMS:
            return False
        if self._refused is not None and self._again(node, row, rms):
            return True
        opinion = self._learned.opinion(node, rms, first=row == 0)
        if opinion or not row:
            return opinion is not False
        first, body = self._first, self._body
        if first.near(rms, MARGIN) or not first.count:
            return True
        if not body.count:
            return opinion is not False and first.near(rms, APART)
        early = body.count < EARLY_ROWS
        if early and rms < first.low and first.near(body.low, MARGIN):
            # All that came may be sinks, of which some prompts begin with two or more.
            return first.near(rms, APART)
        margin = EARLY_MARGIN if early else MARGIN
        spread = max(body.high, rms) <= min(body.low, rms) * WIDEST
        return spread and body.near(rms, margin)

    def _again(self, node: bytes, row: int, rms: float) -> bool:
        """Whether another node gave the same at this place: then it is the model that is so."""
        assert self._refused is not None  # noqa: S101
        other, place, before = self._refused
        return other != node and place == row and 0.8 * before <= rms <= 1.25 * before

    def _note(self, row: int, rms: float) -> None:
        if not row:
            self._first = Span()
            self._first.add(rms)
        elif not self._first.near(rms, LIKE_FIRST):
            self._body.add(rms)

    def _teach(self, sender: Sender, row: int, rms: float) -> None:
        (sender.body if row and not self._first.near(rms, LIKE_FIRST) else sender.first).add(rms)

    def _known(self) -> str:
        if self._body.count:
            return f"before it ({self._body.low:.3g} to {self._body.high:.3g}) do not allow"
        return "of this model never have"
