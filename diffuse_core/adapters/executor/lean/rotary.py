"""Rotary positions (Su et al., arXiv 2104.09864): what queries and keys are turned by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

BLOCK = 256
"""Positions whose factors are made at once: always the same, so that a position's are, too."""
MOST_BLOCKS = 64
"""That are kept: with heads of 128 numbers 8 MiB."""


@dataclass(frozen=True)
class Rotary:
    """Angles per position (head_dim / 2, fp32), and what the turned numbers grow by."""

    frequencies: torch.Tensor
    scale: float
    _blocks: dict[int, torch.Tensor] = field(default_factory=dict, compare=False, repr=False)

    def turns(self, spans: Iterable[tuple[int, int]]) -> torch.Tensor:
        """Factors (n, 1, head_dim / 2), complex, for the positions of all spans (start, end)."""
        found = []
        for start, end in spans:
            at = start
            while at < end:
                number, first = divmod(at, BLOCK)
                last = min(BLOCK, first + end - at)
                found.append(self._block(number)[first:last])
                at += last - first
        return found[0] if len(found) == 1 else torch.cat(found)

    def _block(self, number: int) -> torch.Tensor:
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) >= MOST_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            positions = torch.arange(number * BLOCK, (number + 1) * BLOCK, dtype=torch.float32)
            angles = torch.outer(positions.to(self.frequencies.device), self.frequencies)
            block = torch.polar(torch.full_like(angles, self.scale), angles).unsqueeze(1)
            self._blocks[number] = block
        return block
