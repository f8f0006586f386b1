"""The KV cache of one Session: room for its whole budget, taken when the Session is admitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        shape = (len(part), 2 * family.kv_heads, budget, family.head_dim)
        whole = torch.empty(shape, dtype=dtype, device=device)
        self.tables: Sequence[torch.Tensor] = whole.unbind(0)
        """A layer's (2 * kv_heads, budget, head_dim), keys first."""
        # All layers at once, for each view that a pass makes of one costs a µs.
        self._rows = whole.transpose(1, 2)
        self._keys = whole[:, : family.kv_heads].unsqueeze(1)
        self._values = whole[:, family.kv_heads :].unsqueeze(1)

    def rows(self, start: int, end: int) -> Sequence[torch.Tensor]:
        """Each layer's (end - start, 2 * kv_heads, head_dim), to be written."""
        return self._rows.narrow(1, start, end - start).unbind(0)

    def seen(self, end: int) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
        """Each layer's keys and values (1, kv_heads, end, head_dim)."""
        return self._keys.narrow(3, 0, end).unbind(0), self._values.narrow(3, 0, end).unbind(0)

    def crop(self, length: int) -> None:
        """Forget the positions from `length` on.

        Raises:
            Refused: there are fewer.
        """
        if not 0 <= length <= self.length:
            raise Refused(f"the session has {self.length} rows and cannot be cropped to {length}")
        self.length = length
