"""Checks of single settings: each takes a value from a stranger's file and gives it back typed.

A check is called with the value, the setting's name and the file's name (for errors), and raises
ModelUnusable for what is malformed, out of range or not supported.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from diffuse_core.domain.slices import MAX_LAYERS
from diffuse_core.errors import ModelUnusable

Check = Callable[[object, str, str], object]

_MOST = 1e12


def shown(value: object) -> str:
    """A value for an error: short, whatever it is."""
    return repr(value)[:80]


def count(bottom: int, top: int) -> Check:
    """A whole number from `bottom` to `top`."""

    def check(value: object, key: str, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not bottom <= value <= top:
            raise ModelUnusable(
                f"{where}: {key} is {shown(value)}, not a whole number from {bottom} to {top}"
            )
        return value

    return check


def number(value: object, key: str, where: str) -> float:
    """A finite number of either sign."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ModelUnusable(f"{where}: {key} is {shown(value)}, not a number")
    if abs(value) >= _MOST:
        raise ModelUnusable(f"{where}: {key} is {shown(value)}, beyond reason")
    return float(value)


def above_zero(value: object, key: str, where: str) -> float:
    """A finite number greater than zero."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MOST:
        raise ModelUnusable(f"{where}: {key} is {shown(value)}, not a number above 0")
    return float(value)


def fraction(value: object, key: str, where: str) -> float:
    """A number above 0, at most 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ModelUnusable(f"{where}: {key} is {shown(value)}, not a number above 0 up to 1")
    return float(value)


def flag(value: object, key: str, where: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ModelUnusable(f"{where}: {key} is {shown(value)}, neither true nor false")
    return value


def one_of(*allowed: str) -> Check:
    """One of these words."""

    def check(value: object, key: str, where: str) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise ModelUnusable(
                f"{where}: {key} {shown(value)} is not supported; "
                f"supported are {', '.join(allowed)}"
            )
        return value

    return check


def only(*allowed: object) -> Check:
    """One of these values: any other switches on what was never proven equal."""

    def check(value: object, key: str, where: str) -> object:
        if not any(
            value is item or (value == item and type(value) is type(item)) for item in allowed
        ):
            raise ModelUnusable(
                f"{where}: {key} is {shown(value)}, which is not supported; use another model"
            )
        return value

    return check


def listed(item: Check, most: int = MAX_LAYERS) -> Check:
    """A list of at most `most` values that each pass `item`."""

    def check(value: object, key: str, where: str) -> list[object]:
        if not isinstance(value, list) or len(value) > most:
            raise ModelUnusable(
                f"{where}: {key} is {shown(value)}, not a list of at most {most} entries"
            )
        return [item(entry, key, where) for entry in value]

    return check
