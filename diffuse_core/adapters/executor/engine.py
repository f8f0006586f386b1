"""What an engine is: the arithmetic of a loaded Slice, without Sessions' names or checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import torch

    from diffuse_core.domain.slices import Slice


class KVCache(Protocol):
    """The keys and values of one Session through one part, made by the engine that fills it."""

    part: Slice
    budget: int
    """Positions it may ever hold."""
    length: int
    """Positions it holds; never read from a layer, which may have forgotten some."""

    def crop(self, length: int) -> None:
        """Forget the positions from `length` on.

        Raises:
            Refused: there are fewer, or a sliding window has let go of what would be needed.
        """
        ...


@dataclass(frozen=True)
class Rows:
    """Checked rows for one Session's cache, from position `cache.length` on."""

    cache: KVCache
    inputs: torch.Tensor
    """Token ids (n), int64, for a first part; else hidden states (n, width)."""
    want_logits: bool
    """Also compute the head for the last row, in a last part."""
    alone: bool = False
    """Give each row what it would get by itself; at most the engine's `rows_alone` rows."""
    drafts: int = 0
    """The head is wanted for so many rows before the last one, too; with `want_logits`."""


class Engine(Protocol):
    """Computes.

    Outputs are hidden states (n, width) of a part without the last layer, else the last row's
    fp32 logits (vocab) when they were wanted, with drafts (1 + drafts, vocab), or None.
    """

    @property
    def rows_alone(self) -> int:
        """How many rows of a cache one pass may hold of which each is as if alone; 1: one."""
        ...

    @property
    def weight_bytes(self) -> int:
        """Bytes of the tensors held; what two places share counts once."""
        ...

    def open(self, part: Slice, budget: int) -> KVCache:
        """An empty cache."""
        ...

    def together(self, batch: Sequence[Rows]) -> list[torch.Tensor | None]:
        """Run few rows of each of several different caches; each gets what it would get alone.

        When it raises, every cache is as it was.
        """
        ...

    def bit_by_bit(self, rows: Rows) -> Generator[None, None, torch.Tensor | None]:
        """Run many rows of one cache, pausing where other passes may come between.

        The cache's length grows at the end; a generator that was closed before leaves it of no
        further use.
        """
        ...
