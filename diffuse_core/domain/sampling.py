"""Sampling: from logits to the next token, reproducible on every machine.

The draw comes from a counter-based generator (Philox; Salmon et al., "Parallel random numbers: as
easy as 1, 2, 3", SC 2011) keyed by the seed and counting by position. So it is stateless: another
replica or another route draws the same tokens.

What is done to the logits, in this order, which is that of vLLM
(https://docs.vllm.ai/en/stable/api/vllm/v1/sample/sampler/):

1. log-probabilities are taken, where asked for: of what the model itself gave;
2. the bias is added, then come the repetition penalty, the frequency and the presence penalty;
3. stop ids are barred while the answer has fewer than `min_tokens`;
4. at temperature 0 the largest is taken, the lowest id of equal ones; else
5. they are divided by the temperature;
6. min-p keeps tokens with at least that share of the likeliest one's probability,
7. top-k the likeliest of those, and top-p the likeliest of these whose probability before them
   is below it; each filter sees the probabilities that the one before it left;
8. one token is drawn from what is left.

transformers does the same but applies min-p last, which keeps other tokens only together with
top-p. Where equal logits stand at the edge of top-k, the lower ids stay.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from diffuse_core.domain.decoding import Drawn, TokenLogprobs
from diffuse_core.domain.penalties import Adjustments
from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from diffuse_core.domain.decoding import DecodingParams, SamplingParams

UNREACHABLE = 1e6
"""As far at most is a token said to be out of reach."""
RARE = 1e-6
"""As often an honest Stage draws a token that is no likelier than one that is out of reach."""
SHARES = 5.0
"""How many nats all shares of tokens together count as."""
MOST_NEARLY = 50.0
"""Nats that logits may be apart by, over the temperature: as good as any, and finite."""
FIRST_LOOK = 512
"""Ids sorted at first in search of those that make up top-p; mostly a few dozen do."""
ROUNDING = 1e-9
"""More than what a sum and a product of 64-bit numbers are off by, relatively."""


class Sampler:
    """Draws the tokens of one Session, in order; implements model_ports.TokenChooser.

    What it draws depends on nothing but the request, the position, the logits, and with penalties
    the tokens before: so drafts, or another Sampler that is given them, change nothing. A position
    may be drawn again; what was drawn from there on is forgotten then.
    """

    def __init__(
        self,
        decoding: DecodingParams,
        prompt: int,
        past: Sequence[int] = (),
        seen: Sequence[int] = (),
    ) -> None:
        """After `prompt` positions, and `past` tokens; `seen` are ids of the prompt.

        `past` and `seen` may be left out where the sampling does not need them (see
        SamplingParams).
        """
        self._params = decoding.sampling
        self._prompt = prompt
        self._min_tokens = decoding.min_tokens if decoding.stop_ids else 0
        self._top = decoding.logprobs
        self._stops = frozenset(decoding.stop_ids)
        self._barred = np.array(decoding.stop_ids, dtype=np.intp)
        self._adjustments = Adjustments(decoding.sampling, past, seen)

    def choose(
        self, logits: NDArray[np.float32], position: int, drafts: Sequence[int]
    ) -> tuple[Drawn, ...]:
        """The token for `position`, and those after it as long as `drafts` guessed right.

        None comes after a stop id; what comes after `max_tokens` is for the caller to leave.

        Args:
            logits: (1 + drafts, vocab); row i was computed after the first i drafts.
            position: of the first token that is drawn.
            drafts: tokens guessed for `position` and the positions after it.

        Raises:
            Refused: a logit is not finite, the tokens before are not known though penalties need
                them, or every token of the model is barred.
        """
        self._adjustments.go_to(position - self._prompt)
        drawn = []
        for row, numbers in enumerate(logits):
            token = self._draw(numbers, position + row)
            self._adjustments.add(token)
            drawn.append(Drawn(token, self._told(numbers, token)))
            if row == len(drafts) or drafts[row] != token or token in self._stops:
                break
        return tuple(drawn)

    def examine(
        self, logits: NDArray[np.float32], position: int, token: int, nearly: float = 0.0
    ) -> tuple[int, float]:
        """What comes at `position`, and how far `token` was out of reach; it goes on with that.

        Machines round differently, so another token comes where two are nearly as likely. At
        temperature 0, and of tokens that a filter barred, the distance is in nats: of the logit
        from the largest, or from the least that passed. Else it is that of the random number from
        the share of the token, a fifth of all shares counting as a nat; but a token so unlikely
        that hardly ever one like it is drawn is out of reach, wherever its share lies. 0.0 means
        that it may have been drawn.

        Where shares are sorted, those whose logits are within `nearly` nats may stand before or
        behind that of the token: on another machine they may be the other way round.

        Raises:
            Refused: as `choose` does.
        """
        self._adjustments.go_to(position - self._prompt)
        changed = self._adjusted(logits, position)
        own = _drawn(changed, self._params, position)
        self._adjustments.add(token)
        if own == token:
            return own, 0.0
        return own, _distance(changed, self._params, position, token, nearly)

    def _draw(self, logits: NDArray[np.float32], position: int) -> int:
        return _drawn(self._adjusted(logits, position), self._params, position)

    def _adjusted(self, logits: NDArray[np.float32], position: int) -> NDArray[np.float32]:
        """Logits with bias, penalties and bars; the caller's own where there is none."""
        _require_finite(logits)
        bars = position - self._prompt < self._min_tokens
        if not bars and not self._adjustments.active:
            return logits
        # The caller's are still needed, for log-probabilities and perhaps by the caller.
        changed = logits.copy()
        self._adjustments.apply(changed)
        if bars:
            changed[self._barred[self._barred < len(changed)]] = -np.inf
            if np.isneginf(changed.max()):
                raise Refused("every token of the model is a stop id; ask for no min_tokens")
        return changed

    def _told(self, logits: NDArray[np.float32], token: int) -> TokenLogprobs | None:
        return None if self._top is None else logprobs(logits, token, self._top)


def sample(logits: NDArray[np.float32], params: SamplingParams, position: int) -> int:
    """The token id for `position`, drawn from one row of logits, shape (vocab,).

    By temperature and filters; bias and penalties are a Sampler's.

    Raises:
        Refused: a logit is not finite; the pass that gave it went wrong.
    """
    _require_finite(logits)
    return _drawn(logits, params, position)


def logprobs(logits: NDArray[np.float32], token: int, top: int) -> TokenLogprobs:
    """Log-probabilities of `token` and of the `top` likeliest, from one row of finite logits."""
    numbers = logits.astype(np.float64)
    numbers -= numbers.max()
    drawn, ids = float(numbers[token]), _likeliest(logits, top) if top else ()
    likeliest = [(int(found), float(numbers[found])) for found in ids]
    np.exp(numbers, out=numbers)
    # At least 0, because the largest of the numbers was: so none comes out above 0.
    whole = float(np.log(numbers.sum()))
    return TokenLogprobs(
        drawn - whole, tuple((found, value - whole) for found, value in likeliest)
    )


def _require_finite(logits: NDArray[np.float32]) -> None:
    if not np.isfinite(logits).all():
        raise Refused("the model gave logits that are not finite")


def _drawn(logits: NDArray[np.float32], params: SamplingParams, position: int) -> int:
    if params.temperature == 0.0:
        return int(logits.argmax())
    ids, weights, _ = _candidates(logits, params)
    total = np.cumsum(weights, out=weights)
    place = int(np.searchsorted(total, _uniform(params.seed, position) * total[-1], side="right"))
    place = min(place, len(total) - 1)
    return place if ids is None else int(ids[place])


def _distance(
    logits: NDArray[np.float32], params: SamplingParams, position: int, token: int, nearly: float
) -> float:
    """How far a token was out of reach that was not drawn; see Sampler.examine."""
    if not 0 <= token < len(logits):
        return UNREACHABLE
    if params.temperature == 0.0:
        return _nats(logits.max(), logits[token])
    found, weights, ordered = _candidates(logits, params)
    ids = np.arange(len(logits)) if found is None else found
    at = np.flatnonzero(ids == token)
    if not len(at):
        return _nats(logits[ids].min(), logits[token]) / min(params.temperature, 1.0)
    share, place = float(weights[at[0]]), _uniform(params.seed, position)
    whole = float(weights.sum())
    if weights[weights <= share].sum() < RARE * whole:
        return UNREACHABLE
    # Whether what min-p leaves is more than top-k, and so sorted, may be otherwise elsewhere.
    unsure = params.min_p > 0.0 and params.top_k > 0 and params.top_p == 1.0
    starts = []
    if ordered or unsure:
        alike = math.exp(min(nearly / params.temperature, MOST_NEARLY))
        before = float(weights[weights > share * alike].sum())
        starts.append((before, float(weights[weights * alike >= share].sum())))
    if unsure or not ordered:
        before = float(weights[ids < token].sum())
        starts.append((before, before + share))
    away = [max(0.0, low / whole - place, place - high / whole) for low, high in starts]
    return SHARES * min(away)


def _nats(large: np.floating, small: np.floating) -> float:
    gap = float(large) - float(small)
    return max(0.0, min(gap, UNREACHABLE)) if math.isfinite(gap) else UNREACHABLE


def _uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 bits, from the raw bits: numpy keeps only those the same."""
    bits = int(np.random.Philox(key=seed, counter=position).random_raw())
    return (bits >> 11) * 2.0**-53


def _candidates(
    logits: NDArray[np.float32], params: SamplingParams
) -> tuple[NDArray[np.intp] | None, NDArray[np.float64], bool]:
    """Ids that may be drawn, None for all; with fresh weights that need not sum to 1.

    They are sorted, the likeliest first and the lower id first among equals, where top-k or top-p
    needs that (the third is whether), and else in the order of ids.
    """
    if params.min_p == 0.0:
        return _filtered(logits, params)
    kept = _near(logits, params)
    places, weights, ordered = _filtered(logits[kept], params)
    return kept if places is None else kept[places], weights, ordered


def _near(logits: NDArray[np.float32], params: SamplingParams) -> NDArray[np.intp]:
    """Ids of at least `min_p` of the largest probability, in order."""
    # A first look by logits, a little wider, spares exponentials of a whole vocabulary.
    largest = float(logits.max())
    floor = largest + params.temperature * math.log(params.min_p)
    ids = np.flatnonzero(logits >= np.float64(floor - ROUNDING * (abs(floor) + abs(largest))))
    return ids[_weights(logits[ids], params.temperature) >= params.min_p]


def _filtered(
    logits: NDArray[np.float32], params: SamplingParams
) -> tuple[NDArray[np.intp] | None, NDArray[np.float64], bool]:
    """What top-k and top-p leave, as _candidates gives it."""
    if 0 < params.top_k < len(logits):
        ids = _likeliest(logits, params.top_k)
        weights = _weights(logits[ids], params.temperature)
        return *_nucleus(ids, weights, float(weights.sum()), params.top_p), True
    weights = _weights(logits, params.temperature)
    if params.top_p == 1.0:
        return None, weights, False
    mass = float(weights.sum())
    count = FIRST_LOOK
    while count < len(logits):
        ids = _likeliest(logits, count)
        if weights[ids].sum() >= params.top_p * mass:
            return *_nucleus(ids, weights[ids], mass, params.top_p), True
        count *= 8
    ids = _likeliest(logits, len(logits))
    return *_nucleus(ids, weights[ids], mass, params.top_p), True


def _weights(logits: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    # In place, because the pages of fresh arrays of a vocabulary cost more than the arithmetic.
    numbers = logits.astype(np.float64)
    numbers -= numbers.max()
    with np.errstate(over="ignore"):  # A tiny temperature makes all but the largest -inf.
        numbers /= temperature
    return np.exp(numbers, out=numbers)


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
