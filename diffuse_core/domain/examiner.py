"""What a last Stage would have drawn, where another one drew: its tokens are given."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from diffuse_core.domain.decoding import Drawn
from diffuse_core.domain.sampling import Sampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from diffuse_core.domain.decoding import DecodingParams
    from diffuse_core.domain.session import Group


class Examiner:
    """Implements model_ports.TokenChooser; draws nothing that anybody goes on with."""

    def __init__(
        self,
        decoding: DecodingParams,
        prompt: int,
        given: Sequence[int],
        seen: Sequence[int],
        nearly: float = 0.0,
    ) -> None:
        """`given` tokens stand after `prompt` positions; `nearly` is as Sampler.examine has it."""
        self._prompt = prompt
        self._nearly = nearly
        self._given = tuple(given)
        self._sampler = Sampler(decoding, prompt, (), seen)
        self._told = bytearray()

    def between(self, group: Group) -> tuple[int, ...]:
        """The tokens given for the rows of a group after its first one.

        So that logits of all its rows are seen; of a piece of the prompt the last is enough.
        """
        if group.position < self._prompt:
            return ()
        start = group.position + 1 - self._prompt
        return self._given[start : start + group.rows - 1]

    def choose(
        self, logits: NDArray[np.float32], position: int, drafts: Sequence[int]
    ) -> tuple[Drawn, ...]:
        """Look at every row, whatever it would have drawn."""
        for row, one in enumerate(logits):
            index = position + row - self._prompt
            if index < len(self._given):
                self._look(index, one)
        return tuple(Drawn(token) for token in (*drafts, 0))

    def tell(self, start: int, count: int) -> bytes:
        """Of so many tokens from `start` on: own token and margin, fp32; those there are."""
        return bytes(self._told[start * 8 : (start + count) * 8])

    def _look(self, index: int, logits: NDArray[np.float32]) -> None:
        token = self._given[index]
        own, margin = self._sampler.examine(logits, self._prompt + index, token, self._nearly)
        del self._told[index * 8 :]
        self._told += struct.pack("<2f", own, margin)
