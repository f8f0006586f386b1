"""Sampling by the definition: plain, slow, one token at a time; and a test of what was drawn."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.decoding import DecodingParams

FALSE_ALARM = 1e-4
"""How seldom draws that are right fail a test of their distribution."""
_NORMAL_QUANTILE = 3.719
"""Of 1 - FALSE_ALARM."""


def chances(
    logits: Sequence[float],
    decoding: DecodingParams,
    past: Sequence[int] = (),
    prompt: Sequence[int] = (),
) -> dict[int, float]:
    """Probability of each token that may be drawn after `past`, at a temperature above 0."""
    sampling = decoding.sampling
    changed = adjusted(logits, decoding, past, prompt)
    scaled = {token: value / sampling.temperature for token, value in changed.items()}
    kept = normal(scaled)
    best = max(kept.values())
    kept = {token: p for token, p in kept.items() if p >= sampling.min_p * best}
    order = sorted(kept, key=lambda token: (-changed[token], token))
    order = order[: sampling.top_k or len(order)]
    mass = sum(kept[token] for token in order)
    nucleus, before = [], 0.0
    for token in order:
        if nucleus and before >= sampling.top_p * mass:
            break
        nucleus.append(token)
        before += kept[token]
    whole = sum(kept[token] for token in nucleus)
    return {token: kept[token] / whole for token in nucleus if kept[token] > 0}


def adjusted(
    logits: Sequence[float],
    decoding: DecodingParams,
    past: Sequence[int] = (),
    prompt: Sequence[int] = (),
) -> dict[int, float]:
    """Logits of the tokens that are not barred, after bias and penalties."""
    sampling, counts = decoding.sampling, Counter(past)
    result = {}
    for token, logit in enumerate(logits):
        value = float(logit) + sum(bias for i, bias in sampling.logit_bias if i == token)
        if token in counts or token in prompt:
            factor = sampling.repetition_penalty
            value = value * factor if value < 0 else value / factor
        value -= sampling.frequency_penalty * counts[token]
        value -= sampling.presence_penalty * (counts[token] > 0)
        if len(past) >= decoding.min_tokens or token not in decoding.stop_ids:
            result[token] = value
    return result


def normal(logits: dict[int, float]) -> dict[int, float]:
    """Probabilities."""
    largest = max(logits.values())
    weights = {token: math.exp(value - largest) for token, value in logits.items()}
    whole = math.fsum(weights.values())
    return {token: weight / whole for token, weight in weights.items()}


def differs(draws: Sequence[int], expected: dict[int, float]) -> bool:
    """Whether a G-test tells `draws` from the distribution `expected`.

    Tokens that are expected fewer than 10 times are counted together. The quantile of the
    chi-square distribution is Wilson and Hilferty's (1931).
    """
    seen = Counter(draws)
    if seen.keys() - expected.keys():
        return True
    groups: list[tuple[float, int]] = []
    rare, rare_seen = 0.0, 0
    for token, chance in expected.items():
        if chance * len(draws) < 10:
            rare, rare_seen = rare + chance, rare_seen + seen[token]
        else:
            groups.append((chance, seen[token]))
    if rare * len(draws) >= 10:
        groups.append((rare, rare_seen))
    freedom = len(groups) - 1
    if freedom < 1:
        return False
    statistic = 2 * sum(n * math.log(n / (p * len(draws))) for p, n in groups if n)
    spread = 2 / (9 * freedom)
    return statistic > freedom * (1 - spread + _NORMAL_QUANTILE * math.sqrt(spread)) ** 3


def some_logits(vocab: int, seed: int, scale: float = 2.0) -> np.ndarray:
    """One row, shape (1, vocab)."""
    return (np.random.default_rng(seed).normal(size=(1, vocab)) * scale).astype(np.float32)
