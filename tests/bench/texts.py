"""Prompts for benchmarks: of about so many tokens, to be copied, and not to be copied."""

from __future__ import annotations

import random

COMMON = (
    *("time", "people", "river", "house", "day", "water", "world", "school", "state", "family"),
    *("place", "way", "light", "night", "story", "line", "road", "field", "town", "door"),
    *("hand", "side", "head", "year", "king", "stone", "tree", "bread", "song", "horse"),
)
"""Words that are one token each, with the space before them, in most vocabularies."""

PARAGRAPH = (
    "The keeper of the lighthouse at Cape Mornay counted ninety-seven ships in the autumn of "
    "1873, wrote their names into a green ledger, and sent copies of each page to the harbour "
    "master in Dunmore, who never read them. Twelve of these ships carried timber, nine carried "
    "salted herring, and one, the Albatross, carried nothing but a piano for the mayor's "
    "daughter.\n\n"
)
COPY = PARAGRAPH * 3 + PARAGRAPH[:40]
"""What comes next is the rest of the paragraph, and the paragraph again."""

FRESH = "A list of unusual things that were found in the attic of an old house in Lisbon:"
"""Goes on in many ways; sampled, it hardly says anything twice."""


def long_prompt(tokens: int, salt: int) -> str:
    """About as many tokens, which no cache has seen."""
    rng = random.Random(salt)
    return " ".join(rng.choice(COMMON) for _ in range(tokens))
