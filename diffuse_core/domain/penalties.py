"""What a request changes about logits before a token is drawn: bias and penalties.

Repetition: Keskar et al., "CTRL", 2019, section 4.1, as transformers and vLLM have it, for tokens
of prompt and answer. Presence and frequency: the formula of the OpenAI API, for tokens of the
answer only: logit - count * frequency - (count > 0) * presence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from diffuse_core.domain.decoding import SamplingParams

LARGEST = float(np.finfo(np.float32).max)


class Adjustments:
    """Bias and penalties of one Session, kept up with its answer token by token.

    Only logits of tokens that are biased or mentioned are touched, so a draw costs by what was
    said, not by the vocabulary.
    """

    def __init__(
        self, sampling: SamplingParams, past: Sequence[int] = (), seen: Sequence[int] = ()
    ) -> None:
        """After `past` tokens of the answer; `seen` are ids of the prompt, in any order."""
        self._sampling = sampling
        bias: dict[int, float] = {}
        for token, value in sampling.logit_bias:
            bias[token] = bias.get(token, 0.0) + value
        self._biased = np.array(list(bias), dtype=np.intp)
        self._bias = np.array(list(bias.values()), dtype=np.float64)
        self._seen = np.unique(np.array(seen if sampling.needs_seen else (), dtype=np.intp))
        self._past = list(past) if sampling.needs_past else []
        self._places: dict[int, int] = {}
        self._ids: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self._counts: NDArray[np.float64] = np.empty(0)
        self._count()

    @property
    def active(self) -> bool:
        """Whether anything can change at all."""
        return bool(self._sampling.logit_bias) or self._sampling.needs_past

    def go_to(self, drawn: int) -> None:
        """Be as after `drawn` tokens of the answer; later ones are forgotten.

        Raises:
            Refused: fewer are known.
        """
        if not self._sampling.needs_past or drawn == len(self._past):
            return
        if drawn > len(self._past):
            raise Refused(
                f"penalties need the {drawn} tokens of the answer so far, and "
                f"{len(self._past)} are known here",
                "lost",
            )
        del self._past[drawn:]
        self._count()

    def add(self, token: int) -> None:
        """The answer goes on with `token`."""
        if not self._sampling.needs_past:
            return
        self._past.append(token)
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            self._ids = np.resize(self._ids, 2 * place + 64)
            self._counts = np.concatenate((self._counts, np.zeros(place + 64)))
        self._ids[place] = token
        self._counts[place] += 1

    def apply(self, logits: NDArray[np.float32]) -> None:
        """Change one row of logits, shape (vocab,), in place. They stay finite."""
        if len(self._bias):
            inside = self._biased < len(logits)
            ids = self._biased[inside]
            _put(logits, ids, logits[ids] + self._bias[inside])
        if self._places:
            self._penalize(logits)

    def _penalize(self, logits: NDArray[np.float32]) -> None:
        sampling, known = self._sampling, len(self._places)
        ids, counts = self._ids[:known], self._counts[:known]
        inside = ids < len(logits)
        if not inside.all():
            ids, counts = ids[inside], counts[inside]
        values = logits[ids].astype(np.float64)
        factor = sampling.repetition_penalty
        if factor != 1.0:
            values = np.where(values < 0, values * factor, values / factor)
        values -= counts * sampling.frequency_penalty + (counts > 0) * sampling.presence_penalty
        _put(logits, ids, values)

    def _count(self) -> None:
        """Mentioned ids, each once, and how often each is in the answer."""
        tokens, counts = np.unique(np.array(self._past, dtype=np.intp), return_counts=True)
        self._ids = np.union1d(self._seen, tokens)
        self._counts = np.zeros(len(self._ids))
        self._counts[np.searchsorted(self._ids, tokens)] = counts
        self._places = {token: place for place, token in enumerate(self._ids.tolist())}


def _put(logits: NDArray[np.float32], ids: NDArray[np.intp], values: NDArray[np.float64]) -> None:
    logits[ids] = np.clip(values, -LARGEST, LARGEST)
