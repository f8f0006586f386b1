"""Attention of each Session's rows over its own keys and values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.adapters.executor.lean.kv import LeanCache


PRODUCT_ROWS = 16
PRODUCT_BYTES = 32 * 2**20
"""From so many rows on, while the scores take no more bytes, attention in bf16 is two products.

torch's fused attention takes 7.3 ms for 128 rows over 2,048 positions of SmolLM2 where the
products take 2.7; the distributions are as far from fp32's either way (mean KL 0.001).
"""


@dataclass
class Seat:
    """Rows first:last of a pass are those of one cache, from its position `start` on."""

    cache: LeanCache
    first: int
    last: int
    start: int
    masks: dict[int | None, torch.Tensor] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """How many positions the cache has after the pass."""
        return self.start + self.last - self.first

    def mask(self, window: int | None, group: int, like: torch.Tensor) -> torch.Tensor:
        """What (group * rows, end) may see of what: 0 where it may, -inf where not."""
        found = self.masks.get(window)
        if found is None:
            rows = torch.arange(self.start, self.end, device=like.device).unsqueeze(1)
            columns = torch.arange(self.end, device=like.device)
            hidden = columns > rows
            if window is not None:
                hidden |= columns <= rows - window
            shown = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
            shown.masked_fill_(hidden, float("-inf"))
            found = self.masks[window] = shown.repeat(group, 1)
        return found


@dataclass(frozen=True)
class Seating:
    """The seats of a pass, and how many rows it has: some may be nobody's."""

    seats: Sequence[Seat]
    rows: int


def attend(
    query: torch.Tensor, keys_values: torch.Tensor, seating: Seating, slot: int, window: int | None
) -> torch.Tensor:
    """Put the rows' keys and values into their caches and attend over them.

    Args:
        query: (n, heads, head_dim).
        keys_values: (n, 2 * kv_heads, head_dim), keys first.
        seating: whose the rows are.
        slot: the layer's place in the caches.
        window: how many positions back a row sees, itself included; None is all.

    Returns:
        (n, heads * head_dim); rows of nobody are zero.
    """
    mixed = []
    for seat in seating.seats:
        own = slice(seat.first, seat.last)
        seat.cache.rows[slot][seat.start : seat.end].copy_(keys_values[own])
        attention = _one if seat.last - seat.first == 1 else _many
        mixed.append(attention(query[own], seat, slot, window))
    used = seating.seats[-1].last
    if used < seating.rows:
        mixed.append(mixed[0].new_zeros(seating.rows - used, mixed[0].shape[1]))
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def _one(query: torch.Tensor, seat: Seat, slot: int, window: int | None) -> torch.Tensor:
    """One row: heads that share keys are rows of one product, and nothing needs a mask."""
    keys, values = seat.cache.keys[slot], seat.cache.values[slot]
    low = 0 if window is None else max(0, seat.end - window)
    mixed = functional.scaled_dot_product_attention(
        query.view(1, keys.shape[1], -1, query.shape[-1]),
        keys.narrow(2, low, seat.end - low),
        values.narrow(2, low, seat.end - low),
    )
    return mixed.reshape(1, -1)


def _many(query: torch.Tensor, seat: Seat, slot: int, window: int | None) -> torch.Tensor:
    table = seat.cache.tables[slot]
    rows, heads, width = query.shape
    shared = table.shape[0] // 2
    group = heads // shared
    # (kv_heads, group * rows, head_dim): each group's heads one after the other.
    grouped = query.view(rows, shared, group, width).permute(1, 2, 0, 3)
    grouped = grouped.reshape(shared, group * rows, width)
    keys, values = table[:shared, : seat.end], table[shared:, : seat.end]
    mask = seat.mask(window, group, query)
    scores = shared * group * rows * seat.end * query.dtype.itemsize
    if rows >= PRODUCT_ROWS and query.dtype == torch.bfloat16 and scores <= PRODUCT_BYTES:
        start = mask.unsqueeze(0).expand(shared, -1, -1)
        found = torch.baddbmm(start, grouped, keys.transpose(1, 2), alpha=width**-0.5)
        mixed = torch.bmm(torch.softmax(found, -1), values)
    else:
        mixed = functional.scaled_dot_product_attention(
            grouped.unsqueeze(0), keys.unsqueeze(0), values.unsqueeze(0), attn_mask=mask
        )
    back = mixed.view(shared, group, rows, width).permute(2, 0, 1, 3)
    return back.reshape(rows, heads * width)
