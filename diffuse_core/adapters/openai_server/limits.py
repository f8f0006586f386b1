"""What one server of the API takes on: every count, size and wait has a bound."""

from __future__ import annotations

import msgspec


class ApiLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the API. Sizes in characters or bytes, times in seconds.

    So many generations run `at_once`; so many requests more may be `waiting`, each for `wait_s`
    at most. Of one request's choices so many run side by side. While nothing comes, a stream gets
    a comment each `heartbeat_s`, and a client that takes nothing for `write_s` is given up.
    """

    at_once: int = 16
    side_by_side: int = 4
    waiting: int = 64
    wait_s: float = 20.0
    heartbeat_s: float = 10.0
    write_s: float = 30.0
    body_s: float = 30.0
    body_bytes: int = 8 * 2**20
    depth: int = 32
    messages: int = 1024
    characters: int = 2**20
    parts: int = 256
    prompts: int = 32
    tools: int = 128
    default_tokens: int = 1024
