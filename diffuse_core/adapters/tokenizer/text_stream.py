"""Token ids to text, one at a time: whole characters only, stop strings held back."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WINDOW = 64
"""Ids decoded together: what a token shows may depend on those before it."""
KEPT = 16
"""Ids that stay as context when the window is full."""
PATIENCE = 8
"""Ids after which bytes that make no character are taken for what they are; one has four."""
UNSURE = 3
"""A character of four bytes may show as three replacement characters before it is whole."""

_BROKEN = "\ufffd"


class Decoder(Protocol):
    """What is needed of a `tokenizers.Tokenizer`."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids`."""
        ...


class WholeCharacters:
    """Gives the text that each id adds; the bytes of a character wait until all are there.

    Only a window of the last ids is decoded, so that an id costs the same at any length.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._window: list[int] = []
        self._shown = 0
        self._waiting = ""
        self._waited = 0

    def push(self, token: int) -> str:
        """Text that became certain."""
        if len(self._window) >= (2 * WINDOW if self._waiting else WINDOW):
            self._narrow()
        self._window.append(token)
        text = self._decoder.decode(self._window)
        # A decoder that falls back to bytes shows a whole row of them as broken until its last
        # character is complete, also those that were shown before.
        sure = len(text.rstrip(_BROKEN))
        self._waited = self._waited + 1 if sure < len(text) else 0
        if self._waited > PATIENCE:
            sure = max(sure, len(text) - UNSURE)
        added = text[self._shown : sure]
        self._shown = max(self._shown, sure)
        self._waiting = text[self._shown :]
        return added

    def _narrow(self) -> None:
        """Forget the oldest ids, at the edge of a character where there is one."""
        kept = KEPT
        text = self._decoder.decode(self._window[-kept:])
        while _BROKEN in text and kept < KEPT + UNSURE:
            kept += 1
            text = self._decoder.decode(self._window[-kept:])
        self._window = self._window[-kept:]
        self._shown = max(0, len(text) - len(self._waiting))


class StoppableStream:
    """Implements ports.TextStream over the text of WholeCharacters.

    Of several stop strings the one that is complete first ends the text, so that it does not
    matter how the text was cut into tokens.
    """

    def __init__(
        self,
        decoder: Decoder,
        skipped: frozenset[int],
        stop: Sequence[str],
        shown: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        """`skipped` ids (special tokens) show nothing, but those in `shown` their text there.

        Empty stop strings are ignored.
        """
        self._characters = WholeCharacters(decoder)
        self._skipped = skipped
        self._shown = shown
        self._stop = tuple(word for word in stop if word)
        self._reach = max((len(word) for word in self._stop), default=1) - 1
        self._held = ""
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """A stop string was met; text from it on is dropped."""
        return self._stopped

    @property
    def held(self) -> int:
        """Characters that are held back, as they may begin a stop string."""
        return len(self._held)

    def push(self, token: int) -> str:
        """Text that became certain with this token, maybe empty."""
        if self._stopped:
            return ""
        if token in self._skipped:
            return self._pass(self._shown.get(token, ""))
        return self._pass(self._characters.push(token))

    def flush(self) -> str:
        """What was still held back, at the end.

        Bytes that never became a character are dropped: an answer cut short in the middle of an
        emoji ends before it.
        """
        rest, self._held = self._held, ""
        return rest

    def _pass(self, added: str) -> str:
        if not self._stop or not added:
            return added
        text = self._held + added
        ends = [(at + len(word), at) for word in self._stop if (at := text.find(word)) >= 0]
        if ends:
            self._stopped = True
            self._held = ""
            return text[: min(ends)[1]]
        begun = self._begun(text)
        self._held = text[begun:]
        return text[:begun]

    def _begun(self, text: str) -> int:
        """Where the longest end of `text` starts that a stop string may begin with."""
        for start in range(max(0, len(text) - self._reach), len(text)):
            tail = text[start:]
            if any(word.startswith(tail) for word in self._stop):
                return start
        return len(text)
