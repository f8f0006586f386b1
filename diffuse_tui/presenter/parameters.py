"""How the next answers are to be made: what a user may set for a conversation."""

from __future__ import annotations

import msgspec

DEFAULT_MAX_TOKENS = 1024


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a conversation; the defaults are those of `diffuse chat`.

    `max_tokens` is per answer. `seed` None: another one for every answer.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    stop: tuple[str, ...] = ()
    speculate: bool = True
