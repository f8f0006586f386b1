"""When bytes arrive that are sent over a link: delay, jitter, bandwidth, and loss as TCP shows it.

Pure: time is an argument, chance is seeded. The same pieces at the same times arrive at the same
times again.
"""

from __future__ import annotations

import math
import random

import msgspec

SEGMENT = 1448
"""Bytes of one TCP segment on Ethernet."""
MIN_TIMEOUT_S = 0.2
"""Linux's least variance in a retransmission timeout, which comes on top of a round trip."""
MAX_RESENT = 6


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one direction of a link does to what is sent.

    `delay_s` is one way; `jitter_s` adds up to so much to it, evenly; `loss` is the chance of
    each segment to be lost once.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float = math.inf
    loss: float = 0.0


FREE = Shape()


class Line:
    """One direction of one connection. Bytes arrive in order, so that one lost keeps back all."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)
        self._free_at = -math.inf
        self._last = -math.inf

    def arrival(self, now: float, size: int, shape: Shape) -> float:
        """When `size` bytes that are handed over now have all arrived; seconds, as `now`."""
        left = max(now, self._free_at) + size / shape.bytes_per_s
        self._free_at = left
        arrives = left + shape.delay_s
        if shape.jitter_s:
            arrives += self._rng.uniform(0, shape.jitter_s)
        if shape.loss:
            arrives += self._resending(size, shape)
        self._last = max(self._last, arrives)
        return self._last

    def hold_until(self, moment: float) -> None:
        """Let nothing leave before: a handshake takes its round trip."""
        self._free_at = max(self._free_at, moment)

    def _resending(self, size: int, shape: Shape) -> float:
        """What the unluckiest of the segments waits for its retransmissions, which double."""
        timeout = MIN_TIMEOUT_S + 2 * shape.delay_s
        worst = 0
        for _ in range(math.ceil(size / SEGMENT)):
            lost = 0
            while lost < MAX_RESENT and self._rng.random() < shape.loss:
                lost += 1
            worst = max(worst, lost)
        return timeout * (2**worst - 1)
