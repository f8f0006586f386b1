"""Sampling: from logits to the next token, reproducible on every machine.

The draw comes from a counter-based generator (Philox; Salmon et al., "Parallel random numbers: as
easy as 1, 2, 3", SC 2011) keyed by the seed and counting by position. So it is stateless: another
replica or another route draws the same tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from diffuse_core.domain.decoding import Drawn
from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from diffuse_core.domain.decoding import DecodingParams, SamplingParams

FIRST_LOOK = 512
"""Ids sorted at first in search of those that make up top-p; mostly a few dozen do."""


class Sampler:
    """Draws the tokens of one Session, in order; implements model_ports.TokenChooser."""

    def __init__(
        self,
        decoding: DecodingParams,
        prompt: int,
        past: Sequence[int] = (),
        seen: Sequence[int] = (),
    ) -> None:
        """After `prompt` positions, and `past` tokens; `seen` are ids of the prompt."""
        self._params = decoding.sampling

    def choose(
        self, logits: NDArray[np.float32], position: int, drafts: Sequence[int]
    ) -> tuple[Drawn, ...]:
        """The token for `position`, and those after it as long as `drafts` guessed right.

        Args:
            logits: (1 + drafts, vocab); row i was computed after the first i drafts.
            position: of the first token that is drawn.
            drafts: tokens guessed for `position` and the positions after it.

        Raises:
            Refused: a logit is not finite.
        """
        drawn = []
        for row, numbers in enumerate(logits):
            token = sample(numbers, self._params, position + row)
            drawn.append(Drawn(token))
            if row == len(drafts) or drafts[row] != token:
                break
        return tuple(drawn)


def sample(logits: NDArray[np.float32], params: SamplingParams, position: int) -> int:
    """The token id for `position`, drawn from one row of logits, shape (vocab,).

    Greedy at temperature 0, the lowest id of equal ones. Else temperature, then top-k, then top-p
    (the likeliest tokens whose probability before them is below `top_p`), then one draw.

    Raises:
        Refused: a logit is not finite; the pass that gave it went wrong.
    """
    if not np.isfinite(logits).all():
        raise Refused("the model gave logits that are not finite")
    if params.temperature == 0.0:
        return int(logits.argmax())
    ids, weights = _candidates(logits, params)
    total = weights.cumsum()
    place = int(np.searchsorted(total, _uniform(params.seed, position) * total[-1], side="right"))
    return int(ids[min(place, len(ids) - 1)])


def _uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 bits, from the raw bits: numpy keeps only those the same."""
    bits = int(np.random.Philox(key=seed, counter=position).random_raw())
    return (bits >> 11) * 2.0**-53


def _candidates(
    logits: NDArray[np.float32], params: SamplingParams
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Ids that may be drawn, with weights that need not sum to 1.

    They are sorted, the likeliest first and the lower id first among equals, where a filter needs
    that, and else in the order of ids.
    """
    if 0 < params.top_k < len(logits):
        ids = _likeliest(logits, params.top_k)
        weights = _weights(logits[ids], params.temperature)
        return _nucleus(ids, weights, float(weights.sum()), params.top_p)
    weights = _weights(logits, params.temperature)
    if params.top_p == 1.0:
        return np.arange(len(logits)), weights
    mass = float(weights.sum())
    count = FIRST_LOOK
    while count < len(logits):
        ids = _likeliest(logits, count)
        if weights[ids].sum() >= params.top_p * mass:
            return _nucleus(ids, weights[ids], mass, params.top_p)
        count *= 8
    ids = _likeliest(logits, len(logits))
    return _nucleus(ids, weights[ids], mass, params.top_p)


def _weights(logits: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    below = logits.astype(np.float64)
    below -= below.max()
    with np.errstate(over="ignore"):  # A tiny temperature makes all but the largest -inf.
        return np.exp(below / temperature)


def _likeliest(logits: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """The `count` likeliest ids, sorted."""
    if count < len(logits):
        # Sorting the whole vocabulary would cost a tenth of a small model's pass.
        least = np.partition(logits, len(logits) - count)[len(logits) - count]
        ids = np.flatnonzero(logits >= least)
    else:
        ids = np.arange(len(logits))
    return ids[np.argsort(-logits[ids], kind="stable")[:count]]


def _nucleus(
    ids: NDArray[np.intp], weights: NDArray[np.float64], mass: float, top_p: float
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Of sorted ids those before which less than `top_p` of `mass` lies; at least one."""
    if top_p == 1.0:
        return ids, weights
    before = weights.cumsum() - weights
    keep = max(1, int((before < top_p * mass).sum()))
    return ids[:keep], weights[:keep]
