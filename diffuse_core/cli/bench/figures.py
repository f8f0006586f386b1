"""Figures of what was heard: rates, waits, and what several answers came to together. Pure."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from diffuse_core.domain.pass_times import rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.services.measuring import Heard

Better = Literal["higher", "lower"]


class Row(msgspec.Struct):
    """One figure over the rounds. `better` says which way is good."""

    unit: str
    better: Better
    rounds: list[float]
    median: float = 0.0
    least: float = 0.0
    most: float = 0.0

    def add(self, figure: float) -> None:
        """That of one more round."""
        self.rounds.append(figure)
        self.median = statistics.median(self.rounds)
        self.least, self.most = min(self.rounds), max(self.rounds)


class Rate(NamedTuple):
    """What a kind of figure is called, its unit, and which way is good."""

    unit: str
    better: Better


KINDS: dict[str, Rate] = {
    "first_token_s": Rate("s", "lower"),
    "opening_s": Rate("s", "lower"),
    "prefill_tokens_per_s": Rate("tokens/s", "higher"),
    "decode_tokens_per_s": Rate("tokens/s", "higher"),
    "token_gap_p50_ms": Rate("ms", "lower"),
    "token_gap_p95_ms": Rate("ms", "lower"),
    "tokens_per_pass": Rate("tokens", "higher"),
    "aggregate_tokens_per_s": Rate("tokens/s", "higher"),
    "session_tokens_per_s": Rate("tokens/s", "higher"),
}
"""The first token counts from the request, prefill from the opened Route to the first token."""


def reading(heard: Heard) -> dict[str, float]:
    """What reading the prompt took; nothing where no token came."""
    if not heard.at or heard.opened_at is None:
        return {}
    found = {
        "first_token_s": heard.at[0] - heard.asked_at,
        "opening_s": heard.opened_at - heard.asked_at,
    }
    span = heard.at[0] - heard.opened_at
    if span > 0:
        found["prefill_tokens_per_s"] = heard.prompt_tokens / span
    return found


def decoding(heard: Heard) -> dict[str, float]:
    """How fast tokens came after the first pass; nothing where there were none."""
    gaps = [after - before for before, after in pairwise(heard.at)]
    span = sum(gaps)
    if span <= 0:
        return {}
    return {
        "decode_tokens_per_s": (heard.tokens - heard.counts[0]) / span,
        "token_gap_p50_ms": rank(gaps, 50) * 1000,
        "token_gap_p95_ms": rank(gaps, 95) * 1000,
        "tokens_per_pass": heard.tokens / len(heard.counts),
    }


def together(all_heard: Sequence[Heard]) -> dict[str, float]:
    """What answers came to that ran at once: over the time in which all of them ran.

    Those that were refused or broke off are left out. Nothing where never all ran at once.
    """
    whole = [heard for heard in all_heard if heard.finished is not None and len(heard.at) > 1]
    if not whole:
        return {}
    rates = [decoding(heard).get("decode_tokens_per_s", 0.0) for heard in whole]
    found = {"session_tokens_per_s": statistics.median(rates)}
    begin, end = max(heard.at[0] for heard in whole), min(heard.at[-1] for heard in whole)
    if end > begin:
        said = sum(
            count
            for heard in whole
            for at, count in zip(heard.at, heard.counts, strict=True)
            if begin < at <= end
        )
        found["aggregate_tokens_per_s"] = said / (end - begin)
    return found


def ratio(now: float, before: float) -> float | None:
    """How many times as much; None where there was nothing."""
    return now / before if before > 0 else None
