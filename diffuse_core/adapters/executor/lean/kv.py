"""The KV cache of one Session: room for its whole budget, taken when the Session is admitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from diffuse_core.adapters.executor.lean.family import Family
    from diffuse_core.domain.slices import Slice


class LeanCache:
    """Keys and values of each layer of `part`.

    The memory is reserved at once and not touched: the system gives pages as rows are written,
    so that a long budget costs what is used of it, and growing never copies.
    """

    def __init__(
        self, part: Slice, budget: int, family: Family, dtype: torch.dtype, device: str
    ) -> None:
        self.part = part
        self.budget = budget
        self.length = 0
        shape = (2 * family.kv_heads, budget, family.head_dim)
        self.tables = [torch.empty(shape, dtype=dtype, device=device) for _ in range(len(part))]
        """A layer's (2 * kv_heads, budget, head_dim), keys first."""
        # The same memory as a pass of one row looks at it: made once, for each view costs a µs.
        self.rows = [table.transpose(0, 1) for table in self.tables]
        """(budget, 2 * kv_heads, head_dim)."""
        self.keys = [table[: family.kv_heads].unsqueeze(0) for table in self.tables]
        """(1, kv_heads, budget, head_dim)."""
        self.values = [table[family.kv_heads :].unsqueeze(0) for table in self.tables]
        """(1, kv_heads, budget, head_dim)."""

    def crop(self, length: int) -> None:
        """Forget the positions from `length` on.

        Raises:
            Refused: there are fewer.
        """
        if not 0 <= length <= self.length:
            raise Refused(f"the session has {self.length} rows and cannot be cropped to {length}")
        self.length = length
