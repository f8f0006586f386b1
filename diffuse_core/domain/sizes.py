"""Sizes as people type them."""

from __future__ import annotations

import re

from diffuse_core.errors import UsageError

MIN_SIZE = 2**20
_SIZE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?b?)\s*$", re.IGNORECASE)
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str) -> int:
    """Bytes of e.g. `150MiB`, `2GB`, `1.5g` or `4096`; `MiB` is 2^20 bytes, `MB` 10^6.

    Raises:
        UsageError: it is no size.
    """
    match = _SIZE.match(text)
    if match is None:
        raise UsageError(f"{text!r} is no size; write e.g. 150MiB or 2GiB")
    unit = match[2].lower()
    base = 1000 if unit.endswith("b") and "i" not in unit else 1024
    size = int(float(match[1]) * base ** _UNITS[unit.rstrip("b").rstrip("i")])
    if not MIN_SIZE <= size < 2**50:
        meant = f"; did you mean {text.strip()}MiB?" if not match[2] else ", e.g. 150MiB or 2GiB"
        raise UsageError(f"{text!r} is {size} bytes, which is no useful size{meant}")
    return size
