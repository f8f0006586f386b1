"""What one server of the API takes on: every count, size and wait has a bound."""

from __future__ import annotations

import msgspec


class ApiLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the API. Sizes in bytes or characters, times in seconds.

    So many generations run `at_once`; so many requests more may be `waiting`, each for `wait_s`
    at most. Of one request's choices so many run `side_by_side`. While nothing comes, a stream
    gets a comment each `heartbeat_s`. `default_tokens` is how long an answer may get that was
    asked for without `max_tokens`: room for all of it is taken on every Stage.
    """

    at_once: int = 16
    side_by_side: int = 4
    waiting: int = 64
    wait_s: float = 30.0
    heartbeat_s: float = 10.0
    messages: int = 1024
    characters: int = 2**20
    default_tokens: int = 1024
