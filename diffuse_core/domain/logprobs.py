"""Log-probabilities that a last Stage sent: whether they can be what was asked for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.decoding import TokenLogprobs

SLACK = 1e-6
"""Rounding may put a sum of probabilities so far above 1."""


def sound_logprobs(
    tokens: Sequence[int], logprobs: Sequence[TokenLogprobs], asked: int | None, vocab: int
) -> bool:
    """Whether `logprobs` may be those of `tokens`, where `asked` likeliest ones were asked for.

    They can still be invented: only that they are probabilities of one distribution over `vocab`
    tokens, in order, is checked. `asked` None asks for none, and none may come then.
    """
    if asked is None:
        return not logprobs
    return len(logprobs) == len(tokens) and all(
        _sound(token, entry, min(asked, vocab), vocab)
        for token, entry in zip(tokens, logprobs, strict=True)
    )


def _sound(token: int, entry: TokenLogprobs, count: int, vocab: int) -> bool:
    ids = [found for found, _ in entry.top]
    values = [value for _, value in entry.top]
    if len(ids) != count or len(set(ids)) != count or any(not 0 <= i < vocab for i in ids):
        return False
    # A comparison with NaN is false, so that this bars it too.
    if not all(-math.inf < value <= 0.0 for value in (entry.drawn, *values)):
        return False
    if values != sorted(values, reverse=True) or sum(map(math.exp, values)) > 1.0 + SLACK:
        return False
    if token in ids:
        return entry.drawn == values[ids.index(token)]
    return not values or entry.drawn <= values[-1]
