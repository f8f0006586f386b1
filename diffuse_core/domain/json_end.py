"""Where a JSON object or list ends, in text that arrives in pieces."""

from __future__ import annotations

import re
from typing import Literal

_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')
_CLOSES = {"{": "}", "[": "]"}

Progress = Literal["open", "ended", "broken"]


class JsonEnd:
    """Follows brackets and strings of one value; each character is looked at once."""

    def __init__(self, most: int, depth: int) -> None:
        """A value of more than `most` characters, or nested deeper than `depth`, is broken."""
        self._most = most
        self._depth = depth
        self._expected: list[str] = []
        self._inside = False
        self.at = 0
        """How far the text was read: where the value ended, or broke."""

    def read(self, text: str) -> Progress:
        """Read on in `text`, the value from its beginning as far as it arrived."""
        end = min(len(text), self._most)
        while self.at < end:
            found = (_INSIDE if self._inside else _OUTSIDE).search(text, self.at, end)
            if found is None:
                self.at = end
                break
            self.at = found.end()
            if self._inside and found[0] == "\\":
                if self.at == end:
                    self.at -= 1  # What it escapes is still to come.
                    break
                self.at += 1
            elif not self._take(found[0]):
                return "broken"
            elif not self._expected:
                return "ended"
        if len(text) < self._most:
            return "open"
        self.at = self._most
        return "broken"

    def _take(self, sign: str) -> bool:
        """Whether the value can go on, or end, with a quote or bracket."""
        if sign == '"':
            self._inside = not self._inside
        elif sign in _CLOSES:
            self._expected.append(_CLOSES[sign])
        elif self._expected.pop() != sign:
            return False
        return len(self._expected) <= self._depth
