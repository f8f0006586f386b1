"""Which Stages of a generation are audited, and where their rows are looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.spots import MAX_SPOTS

if TYPE_CHECKING:
    import random


class SpotPlan:
    """What chance decides of one generation; nobody but the client knows."""

    def __init__(self, chance: float, hidden: int, rng: random.Random) -> None:
        """Each Stage with this `chance`; rows have `hidden` numbers."""
        self._chance = chance
        self._hidden = hidden if chance else 0
        self._rng = rng
        self._spots: dict[int, tuple[int, ...]] = {}
        self._taken: dict[int, bool] = {}

    def spots(self, layer: int) -> tuple[int, ...]:
        """The coordinates at the border before a layer; none before the first."""
        if not layer or not self._hidden:
            return ()
        if layer not in self._spots:
            count = min(MAX_SPOTS, self._hidden)
            self._spots[layer] = tuple(self._rng.sample(range(self._hidden), count))
        return self._spots[layer]

    def takes(self, index: int) -> bool:
        """Whether the Stage at this place of the Route is audited: once and for all."""
        if not self._chance:
            return False
        if index not in self._taken:
            self._taken[index] = self._rng.random() < self._chance
        return self._taken[index]
