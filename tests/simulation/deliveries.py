"""Traces: a hash over everything that was delivered, in order, and what was sent, by kind."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter

FRAME_OVERHEAD = 28
"""Bytes that a message takes beside itself: frame header 4, AEAD tag 16, WebSocket header 8."""
_moment = struct.Struct("<dII").pack


class Trace:
    """Two runs whose hashes are equal delivered the same bytes at the same times."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.delivered = 0

    def delivery(self, now: float, sender: int, receiver: int, data: bytes) -> None:
        self.delivered += 1
        self._hash.update(_moment(now, sender, receiver) + data)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


class Traffic:
    """Messages and bytes sent, by kind of message; `wire_bytes` with the framing."""

    def __init__(self) -> None:
        self.messages: Counter[str] = Counter()
        self.sizes: Counter[str] = Counter()

    def sent(self, kind: str, size: int) -> None:
        self.messages[kind] += 1
        self.sizes[kind] += size

    @property
    def wire_bytes(self) -> int:
        return self.sizes.total() + FRAME_OVERHEAD * self.messages.total()

    def since(self, before: Traffic) -> Traffic:
        """What was sent after the copy `before` was taken."""
        later = Traffic()
        later.messages = self.messages - before.messages
        later.sizes = self.sizes - before.sizes
        return later

    def copy(self) -> Traffic:
        return self.since(Traffic())
