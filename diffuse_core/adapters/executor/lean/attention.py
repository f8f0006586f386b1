"""Attention of each Session's rows over its own keys and values.

All that the layers of a pass share is made once, before the first of them: in a pass of one row
each tensor operation costs as much as a good part of a matrix, and a view hardly less.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from diffuse_core.adapters.executor.lean.piece_attention import PieceAttention, suits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.adapters.executor.lean.family import Family
    from diffuse_core.adapters.executor.lean.kv import LeanCache


@dataclass(frozen=True)
class Seat:
    """Rows first:last of a pass are those of one cache, from its position `start` on."""

    cache: LeanCache
    first: int
    last: int
    start: int

    @property
    def end(self) -> int:
        """How many positions the cache has after these rows."""
        return self.start + self.last - self.first

    def windows(self, family: Family) -> Sequence[int | None]:
        """How many positions back a row sees, itself included, in each layer of the part."""
        return family.windows[self.cache.part.start : self.cache.part.end]

    def mask(self, window: int | None, group: int, like: torch.Tensor) -> torch.Tensor:
        """What (group * rows, end) may see of what: 0 where it may, -inf where not."""
        rows = torch.arange(self.start, self.end, device=like.device).unsqueeze(1)
        columns = torch.arange(self.end, device=like.device)
        hidden = columns > rows
        if window is not None:
            hidden |= columns <= rows - window
        shown = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
        return shown.masked_fill_(hidden, float("-inf")).repeat(group, 1)


class Seating:
    """Whose the rows of a pass are, and where its layers put what they have of them.

    `heads` takes the rows' queries, keys and values (rows, heads + 2 * kv_heads, head_dim), in
    fp32: rounding a turned key twice would cost accuracy. Rows after the last seat are nobody's.
    """

    def __init__(
        self, seats: Sequence[Seat], rows: int, family: Family, dtype: torch.dtype, device: str
    ) -> None:
        width, count = family.head_dim, family.heads
        keys = count + family.kv_heads
        self.heads = torch.empty((rows, keys + family.kv_heads, width), device=device)
        self.flat = self.heads.view(rows, -1)
        self.queries = self.heads.narrow(1, 0, count)
        self.keys = self.heads.narrow(1, count, family.kv_heads)
        pairs = torch.view_as_complex(self.heads.view(rows, keys + family.kv_heads, -1, 2))
        self.pairs = pairs.narrow(1, 0, keys)
        """What is turned by its position: (rows, heads + kv_heads, head_dim / 2), complex."""
        self._query = torch.empty((rows, count, width), dtype=dtype, device=device)
        self._mixed = torch.zeros((rows, count * width), dtype=dtype, device=device)
        self._writes = self._places(seats, self.heads.narrow(1, count, 2 * family.kv_heads))
        self._lone = any(seat.last - seat.first == 1 for seat in seats)
        self._reads = [self._read(seat, family) for seat in seats]

    def _read(self, seat: Seat, family: Family) -> _One | _Few | PieceAttention:
        """How rows attend: which way it is depends on nothing but themselves."""
        rows = seat.last - seat.first
        if rows == 1:
            return _One(seat, self._query, self._mixed, family)
        if not suits(rows, seat.end, family, self._mixed.dtype, self._mixed.device.type):
            return _Few(seat, self.queries, self._mixed, family)
        own = slice(seat.first, seat.last)
        queries, mixed = self.queries[own], self._mixed[own]
        tables, windows = seat.cache.seen(seat.end), seat.windows(family)
        return PieceAttention(seat.start, queries, mixed, tables, windows, family)

    @staticmethod
    def _places(
        seats: Sequence[Seat], keys_values: torch.Tensor
    ) -> list[tuple[Sequence[torch.Tensor], torch.Tensor]]:
        """For each cache, where each layer's keys and values go, and the rows that do."""
        places = []
        for _, found in groupby(seats, lambda seat: id(seat.cache)):
            own = list(found)
            first, last = own[0].first, own[-1].last
            rows = keys_values.narrow(0, first, last - first)
            places.append((own[0].cache.rows(own[0].start, own[-1].end), rows))
        return places

    def attend(self, slot: int) -> torch.Tensor:
        """Put the rows' keys and values into their caches and attend over them.

        Args:
            slot: the layer's place in the caches.

        Returns:
            (rows, heads * head_dim), good until the next layer's; rows of nobody are zero.
        """
        for into, rows in self._writes:
            into[slot].copy_(rows)
        if self._lone:
            self._query.copy_(self.queries)
        for read in self._reads:
            read.attend(slot)
        return self._mixed


class _One:
    """One row: heads that share keys are rows of one product, and nothing needs a mask."""

    def __init__(
        self, seat: Seat, query: torch.Tensor, mixed: torch.Tensor, family: Family
    ) -> None:
        shape = (1, family.kv_heads, -1, family.head_dim)
        self._query = query[seat.first].view(shape)
        self._mixed = mixed[seat.first].view(shape)
        keys, values = seat.cache.seen(seat.end)
        windows = seat.windows(family)
        if any(window is not None and window < seat.end for window in windows):
            keys, values = _latest(keys, windows), _latest(values, windows)
        self._keys, self._values = keys, values

    def attend(self, slot: int) -> None:
        """Mix what a layer's values say."""
        mixed = functional.scaled_dot_product_attention(
            self._query, self._keys[slot], self._values[slot]
        )
        self._mixed.copy_(mixed)


def _latest(
    tables: Sequence[torch.Tensor], windows: Sequence[int | None]
) -> Sequence[torch.Tensor]:
    """The last positions of each layer's (1, kv_heads, n, head_dim), as many as it looks back."""
    return [
        table if window is None else table[:, :, -window:]
        for table, window in zip(tables, windows, strict=True)
    ]


class _Few:
    """Rows that are in one product, a mask hiding what comes after each."""

    def __init__(
        self, seat: Seat, queries: torch.Tensor, mixed: torch.Tensor, family: Family
    ) -> None:
        rows, width = seat.last - seat.first, family.head_dim
        shared, group = family.kv_heads, family.heads // family.kv_heads
        apart = (rows, shared, group, width)
        self._seat = seat
        self._windows = seat.windows(family)
        self._masks: dict[int | None, torch.Tensor] = {}
        self._queries = queries[seat.first : seat.last].view(apart).permute(1, 2, 0, 3)
        self._mixed = mixed[seat.first : seat.last].view(apart).permute(1, 2, 0, 3)
        # Each group's heads one after the other.
        self._split = mixed.new_empty((shared, group, rows, width))
        self._grouped = self._split.view(1, shared, group * rows, width)
        self._keys, self._values = seat.cache.seen(seat.end)

    def attend(self, slot: int) -> None:
        """Mix what a layer's values say."""
        window = self._windows[slot]
        mask = self._masks.get(window)
        if mask is None:
            mask = self._seat.mask(window, self._split.shape[1], self._split)
            self._masks[window] = mask
        self._split.copy_(self._queries)
        mixed = functional.scaled_dot_product_attention(
            self._grouped, self._keys[slot], self._values[slot], attn_mask=mask
        )
        self._mixed.copy_(mixed.view(self._split.shape))
