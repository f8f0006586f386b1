"""What becomes of models: lost, whole again, safe or not; in words for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.coverage import by_model, cover, held_slices, missing_text
from diffuse_core.domain.plain_text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.coverage import Coverage
    from diffuse_core.domain.members import Member
    from diffuse_core.domain.narration import Line
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.domain.slices import Slice
    from diffuse_core.domain.view import CoverageState

MAX_MODELS = 64
"""Of which the news are told; of more, those held longest."""


class _Known(NamedTuple):
    """What was told last of a model, and since when it has been otherwise (seconds)."""

    state: CoverageState
    missing: tuple[Slice, ...]
    other_since: float | None = None


class ModelNews:
    """Compares the coverage of each model with what was told of it last.

    A change is told once it has stood for `settle` seconds: a Host that moves, or a network that
    one is only beginning to know, is no news. Times in seconds of one monotonic clock.
    """

    def __init__(self, target_replicas: int, settle: float) -> None:
        self._target = target_replicas
        self._settle = settle
        self._known: dict[ModelRef, _Known] = {}

    def look(self, members: Sequence[Member], now: float) -> list[Line]:
        """What there is to tell now."""
        found = by_model(members)
        for gone in self._known.keys() - found.keys():
            # Whoever held it last left or died, and that was told.
            del self._known[gone]
        lines: list[Line] = []
        for ref, held_by in found.items():
            coverage = cover(ref.shape.layers, held_slices(held_by, ref), self._target)
            if ref in self._known:
                lines += self._compare(ref, coverage, now)
            elif len(self._known) < MAX_MODELS:
                self._known[ref] = _Known(coverage.state, coverage.missing)
        return lines

    def _compare(self, ref: ModelRef, coverage: Coverage, now: float) -> list[Line]:
        known = self._known[ref]
        if (coverage.state, coverage.missing) == (known.state, known.missing):
            self._known[ref] = known._replace(other_since=None)
            return []
        since = now if known.other_since is None else known.other_since
        self._known[ref] = known._replace(other_since=since)
        if now - since < self._settle:
            return []
        self._known[ref] = _Known(coverage.state, coverage.missing)
        return _told(ref, known, coverage)


def _told(ref: ModelRef, before: _Known, now: Coverage) -> list[Line]:
    name = clean_line(ref.id, 64)
    if now.missing:
        if all(any(gap.contains(part) for gap in before.missing) for part in now.missing):
            return []  # Less of what was missing already: on the way to nothing.
        return [("error", f"{name} is Incomplete: {missing_text(ref.shape.layers, now.missing)}")]
    if now.state == "Robust":
        return [("good", f"{name} is Robust: every layer has as many replicas as it should")]
    count = "one holder" if now.min_replicas == 1 else f"{now.min_replicas} holders"
    weak = f"Fragile: layers {now.weakest} have {count}"
    if before.missing:
        return [("good", f"{name} has all its layers and can answer; it is {weak}")]
    return [("warning", f"{name} is {weak}")]
