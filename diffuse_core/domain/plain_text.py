"""Plain text: what comes from the network, made safe for a terminal.

Names, events and answers come from machines that nobody vouches for: escape sequences, direction
overrides and half surrogates must reach the screen as visible, harmless characters or not at all.
"""

from __future__ import annotations

MAX_LINE = 512
"""Longest single-line text that is worth showing, in characters."""

_PICTURES = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "␡"}
_C1 = dict.fromkeys(range(0x80, 0xA0), "\N{REPLACEMENT CHARACTER}")
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")
# Direction overrides and isolates can reorder a whole line; the others hide text or break lines.
_DROPPED = dict.fromkeys(
    (0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), 0x2060, *range(0x2066, 0x206A), 0xFEFF)
)
_BREAKS = {0x2028: "\n", 0x2029: "\n"}
_TABLE = _PICTURES | _C1 | _SURROGATES | _DROPPED | _BREAKS | {0x09: "    ", 0x0A: "\n"}


def clean(text: str) -> str:
    """Many lines of text with control characters made visible; tabs become four spaces."""
    return text.replace("\r\n", "\n").translate(_TABLE)


def clean_line(text: str, limit: int = MAX_LINE) -> str:
    """One line of at most `limit` characters, cut with an ellipsis."""
    line = clean(text[: limit + 1]).replace("\n", " ")
    return line if len(line) <= limit else shorten(line, limit)


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` characters, the cut marked with an ellipsis."""
    if len(text) <= width:
        return text
    return text[: max(0, width - 1)] + "…"
