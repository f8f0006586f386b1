"""The engine for every proven architecture: the library's own modules, one row set at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diffuse_core.adapters.executor.library_cache import LibraryCache
from diffuse_core.adapters.executor.part_module import PartModule

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    import torch

    from diffuse_core.adapters.executor.engine import KVCache, Rows
    from diffuse_core.adapters.executor.skeleton import Plan
    from diffuse_core.domain.slices import Slice

MAX_KEPT_PARTS = 8


class GeneralEngine:
    """Implements engine.Engine. Sessions do not share a pass: each gets the library's own."""

    def __init__(
        self,
        plan: Plan,
        part: Slice,
        dtype: torch.dtype,
        weights: Mapping[str, torch.Tensor],
        module: Any,
        device: str = "cpu",
    ) -> None:
        """Take over loaded `weights` (by the whole model's names) and the module of `part`."""
        self._plan = plan
        self._slice = part
        self._dtype = dtype
        self._weights = weights
        self._device = device
        self._parts = {part: PartModule(plan, part, weights, module, device)}

    @property
    def weight_bytes(self) -> int:
        """Bytes of the tensors held; a tied embedding and head count once."""
        unique = {tensor.data_ptr(): tensor.nbytes for tensor in self._weights.values()}
        return sum(unique.values())

    @property
    def rows_alone(self) -> int:
        """The library's pass of several rows adds in another order than passes of one."""
        return 1

    def open(self, part: Slice, budget: int) -> LibraryCache:
        """An empty cache."""
        return LibraryCache(part, budget, self._part(part))

    def together(self, batch: Sequence[Rows]) -> list[torch.Tensor | None]:
        """Run rows of several different caches, one after another.

        When it raises, every cache is as it was.
        """
        caches = [_own(rows.cache) for rows in batch]
        saved = [(cache, cache.saved(), cache.length) for cache in caches]
        done = False
        try:
            outputs = [
                self._forward(rows, cache) for rows, cache in zip(batch, caches, strict=True)
            ]
            done = True
        finally:
            if not done:
                for cache, fields, length in saved:
                    cache.restore(fields)
                    cache.length = length
        return outputs

    def bit_by_bit(self, rows: Rows) -> Generator[None, None, torch.Tensor | None]:
        """Run many rows of one cache, in one piece: the library's pass cannot be paused."""
        yield from ()
        return self._forward(rows, _own(rows.cache))

    def _forward(self, rows: Rows, cache: LibraryCache) -> torch.Tensor | None:
        output = cache.module.forward(
            rows.inputs.to(self._device), cache.length, cache.cache, want_logits=rows.want_logits
        )
        cache.length += rows.inputs.shape[0]
        return output

    def _part(self, part: Slice) -> PartModule:
        """The module of a part: kept for the next Session, but not without bound."""
        found = self._parts.get(part)
        if found is None:
            others = [known for known in self._parts if known != self._slice]
            if len(others) >= MAX_KEPT_PARTS:
                del self._parts[others[0]]
            module = self._plan.build(part, self._dtype)
            found = PartModule(self._plan, part, self._weights, module, self._device)
            self._parts[part] = found
        return found


def _own(cache: KVCache) -> LibraryCache:
    if not isinstance(cache, LibraryCache):
        raise TypeError("a cache of another engine")
    return cache
