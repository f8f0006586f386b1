"""The exact bytes of single tokens: a token may be a part of a character only.

Byte-level tokenizers (GPT-2's way) write each byte as one character of an alphabet of 256.
Those after SentencePiece's write spaces as U+2581 and bytes as `<0x41>`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokenizers import Tokenizer as FastTokenizer

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "\u2581"


class _Outline(msgspec.Struct):
    """What is looked at of a tokenizer.json that was found good; the vocabulary is passed over."""

    decoder: dict[str, Any] | None = None


_outline = msgspec.json.Decoder(_Outline)


class TokenBytes:
    """Knows the bytes of one tokenizer's tokens."""

    def __init__(self, fast: FastTokenizer, description: bytes, added: Mapping[int, str]) -> None:
        """`description` is the tokenizer's JSON file, `added` the texts of its added tokens."""
        self._fast = fast
        self._added = added
        kinds, texts = _decoder(description)
        self._alphabet = _byte_alphabet() if "ByteLevel" in kinds else None
        self._pieces = "Metaspace" in kinds or _SPACE in texts
        self._has_bytes = "ByteFallback" in kinds

    def of(self, token: int) -> bytes | None:
        """The bytes that a token adds to a text; None where this tokenizer does not tell."""
        if token in self._added:
            return self._added[token].encode()
        piece = self._fast.id_to_token(token)
        if piece is None:
            return None
        if self._alphabet is not None:
            if any(character not in self._alphabet for character in piece):
                return None
            return bytes(self._alphabet[character] for character in piece)
        found = _BYTE.fullmatch(piece)
        if found and self._has_bytes:
            return bytes.fromhex(found[1])
        return piece.replace(_SPACE, " ").encode() if self._pieces else None


def _decoder(description: bytes) -> tuple[set[str], set[str]]:
    """The kinds of a tokenizer's decoding steps, and the texts that they replace."""
    root = _outline.decode(description).decoder
    steps = [] if root is None else [root]
    kinds: set[str] = set()
    texts: set[str] = set()
    while steps:
        step = steps.pop()
        kinds.add(str(step.get("type")))
        texts.add(str((step.get("pattern") or {}).get("String")))
        steps += step.get("decoders") or []
    return kinds, texts


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's: printable bytes stand for themselves, the others for characters from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {
        chr(0x100 + at): byte for at, byte in enumerate(others)
    }
