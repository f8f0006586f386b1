"""Several answers to one question: the seed of each."""

from __future__ import annotations

import hashlib

MAX_ALTERNATIVES = 32

_LABEL = b"diffuse alternative 1\0"


def alternative_seed(seed: int, index: int) -> int:
    """The seed of alternative `index` of an answer that was asked for with `seed`.

    That of 0 is `seed` itself, so that the first of several answers is the one that comes alone.
    The others' are the first 63 bits of SHA-256 over a label, the seed and the index (each in 8
    bytes, the highest first), so that neighbouring seeds share no answers.

    Args:
        seed: 0..2**63 - 1.
        index: 0..2**63 - 1.
    """
    if index == 0:
        return seed
    digest = hashlib.sha256(_LABEL + seed.to_bytes(8, "big") + index.to_bytes(8, "big")).digest()
    return int.from_bytes(digest[:8], "big") >> 1
