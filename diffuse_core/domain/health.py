"""Local health, after Lifeguard: whoever seems slow or cut off doubts itself before others."""

from __future__ import annotations

MAX_HEALTH = 8


class LocalHealth:
    """0 when all is well, up to MAX_HEALTH when we ourselves seem slow or cut off."""

    def __init__(self) -> None:
        self.level = 0

    @property
    def stretch(self) -> int:
        """By how much our own timeouts are longer than usual, 1 when all is well."""
        return 1 + self.level

    def ail(self) -> None:
        """Something speaks for our being the slow one."""
        self.level = min(MAX_HEALTH, self.level + 1)

    def mend(self) -> None:
        """Something speaks for our being well."""
        self.level = max(0, self.level - 1)
