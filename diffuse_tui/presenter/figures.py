"""Figures as people read them: bytes, rates, times, bars."""

from __future__ import annotations

import math

NOTHING = "—"
"""What stands where there is no figure, or none that is a number."""

_MOST = 2.0**63
"""Greater figures are nonsense of somebody's, and would fill the line with their digits."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def figure_text(value: float, digits: int = 0) -> str:
    """A figure with so many digits after the point."""
    if math.isnan(value):
        return NOTHING
    return f"{max(-_MOST, min(_MOST, value)):.{digits}f}"


def size_text(count: float) -> str:
    """Bytes with a binary unit: `512 B`, `46 MiB`, `1.2 GiB`."""
    if math.isnan(count):
        return NOTHING
    value = max(0.0, min(_MOST, count))
    unit = 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    digits = 1 if unit and value < 10 else 0
    return f"{value:.{digits}f} {_UNITS[unit]}"


def rate_text(per_second: float) -> str:
    """Bytes per second."""
    return f"{size_text(per_second)}/s"


def speed_text(tokens_per_s: float) -> str:
    """Tokens per second without the unit; a dash when idle."""
    if not tokens_per_s >= 0.05:  # What would read as 0.0, or is no number.
        return NOTHING
    tokens_per_s = min(_MOST, tokens_per_s)
    return f"{tokens_per_s:.1f}" if tokens_per_s < 1000 else f"{tokens_per_s:.0f}"


def duration_text(seconds: float) -> str:
    """The two largest units: `4 s`, `3 min 5 s`, `2 h 10 min`, `4 d 1 h`."""
    if math.isnan(seconds):
        return NOTHING
    whole = int(max(0.0, min(_MOST, seconds)))
    for size, name, small, small_name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {name}" + (f" {rest} {small_name}" if rest else "")
    return f"{whole} s"


def age_text(seconds: float) -> str:
    """How long ago, in its largest unit only."""
    if math.isnan(seconds):
        return NOTHING
    whole = int(max(0.0, min(_MOST, seconds)))
    if whole < 2:
        return "now"
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if whole >= size:
            return f"{whole // size} {name}"
    return f"{whole} s"


def round_trip_text(seconds: float | None) -> str:
    """A round trip in milliseconds; a dash when unmeasured."""
    if seconds is None or math.isnan(seconds):
        return NOTHING
    ms = max(0.0, min(_MOST, seconds * 1000))
    return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"


def percent(part: float, whole: float) -> int:
    """`part` of `whole`, 0..100; 0 of nothing is 0, and so is what is no number."""
    share = 100 * (part / whole) if whole > 0 else 0.0
    return 0 if math.isnan(share) else round(max(0.0, min(100.0, share)))


def bar(value: int, width: int) -> tuple[str, str]:
    """The filled and the empty part of a bar for `value` percent, together `width` cells."""
    filled = max(0, min(width, round(value * width / 100)))
    return "━" * filled, "─" * (width - filled)


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 host`, `2 hosts`."""
    return f"{count} {one if count == 1 else many or one + 's'}"
