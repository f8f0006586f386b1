"""Sampling: from logits to the next token, reproducible on every machine.

The draw comes from a counter-based generator (Philox; Salmon et al., "Parallel random numbers: as
easy as 1, 2, 3", SC 2011) keyed by the seed and counting by position. So it is stateless: another
replica or another route draws the same tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diffuse_core.domain.decoding import SamplingParams


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
    order, probabilities = _candidates(logits, params)
    total = probabilities.cumsum()
    generator = np.random.Generator(np.random.Philox(key=params.seed, counter=position))
    place = int(np.searchsorted(total, generator.random() * total[-1], side="right"))
    return int(order[min(place, len(order) - 1)])


def _candidates(
    logits: NDArray[np.float32], params: SamplingParams
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Ids that may be drawn, likeliest first and the lower id first among equals, with weights."""
    scaled = logits.astype(np.float64) / params.temperature
    weights = np.exp(scaled - scaled.max())
    order = np.argsort(-weights, kind="stable")
    if params.top_k:
        order = order[: params.top_k]
    kept = weights[order]
    kept /= kept.sum()
    if params.top_p < 1.0:
        before = kept.cumsum() - kept
        keep = max(1, int((before < params.top_p).sum()))
        order, kept = order[:keep], kept[:keep]
    return order, kept
