"""Where a Host is in its life, in words, and how far it is with what takes long."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

from diffuse_core.domain.machine import HostProgress

if TYPE_CHECKING:
    from diffuse_core.domain.planner import Plan
    from diffuse_core.domain.slices import Slice

log = logging.getLogger(__name__)

Kind = Literal["reading", "downloading", "loading"]
MAX_REASON = 256


class HostPhase:
    """`text` says what the Host does, `fraction` (0..1) how far it is, `reason` why this slice."""

    def __init__(self) -> None:
        self.text = "starting"
        self.fraction = 0.0
        self.reason = ""
        self._kind: Kind | None = None
        self._slice: Slice | None = None
        self._bytes = 0

    def enter(self, text: str, kind: Kind | None = None) -> None:
        """Something else is done from now on; `kind` where that has a progress."""
        self.text, self.fraction, self._kind = text, 0.0, kind
        log.debug("host: %s", text)

    def begin(self, plan: Plan) -> None:
        """The Slice of `plan` is brought here and loaded."""
        self.reason = plan.reason[:MAX_REASON]
        self._slice = plan.slice
        self._bytes = sum(plan.bytes.get(key, 0) for key in ("weights", "embedding", "head"))
        self.enter(f"loading {plan.slice}", "loading")

    def downloaded(self, fraction: float) -> None:
        """So much of the Slice is on this machine; with all of it, loading goes on."""
        kind: Kind = "loading" if fraction >= 1.0 else "downloading"
        text = f"{kind} {self._slice}"
        if self.text != text:
            self.enter(text, kind)
        self.fraction = 0.0 if kind == "loading" else fraction

    def withdrawn(self) -> None:
        """No Slice is held any more."""
        self.reason, self._slice, self._bytes = "", None, 0

    def progress(self) -> HostProgress | None:
        """How far the Host is; None while nothing is read."""
        if self._kind is None:
            return None
        fraction = max(0.0, min(1.0, self.fraction))
        if self._kind == "reading":
            return HostProgress("reading", fraction)
        done = int(fraction * self._bytes)
        return HostProgress(self._kind, fraction, self._slice, done, self._bytes)
