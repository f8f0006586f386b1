"""Bounded tables: what is remembered of others never grows without an end."""

from __future__ import annotations

from typing import Any


def forget_oldest(table: dict[Any, Any], most: int) -> None:
    """Drop what was put in first until at most `most` entries are left."""
    while len(table) > most:
        del table[next(iter(table))]
