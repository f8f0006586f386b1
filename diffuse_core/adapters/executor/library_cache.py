"""What a Session has on one Stage of the general path: the library's cache, and its own length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicSlidingWindowLayer

from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from diffuse_core.adapters.executor.part_module import PartModule
    from diffuse_core.domain.slices import Slice

SLACK = 64
"""Positions that a sliding layer keeps beyond its window, so that a few can be taken back."""


class LibraryCache:
    """Implements engine.KVCache: KV of one Session through one part.

    Layers differ: one with a sliding window forgets, and its own count is not the position.
    """

    def __init__(self, part: Slice, budget: int, module: PartModule) -> None:
        self.part = part
        self.budget = budget
        self.module = module
        self.length = 0
        self.cache: Any = _empty(module.config)

    def crop(self, length: int) -> None:
        """Forget the rows from `length` on.

        Raises:
            Refused: there are fewer rows, or a sliding window has let go of rows that would be
                needed again.
        """
        if not 0 <= length <= self.length:
            raise Refused(f"the session has {self.length} rows and cannot be cropped to {length}")
        if length == self.length:
            return
        if length == 0:
            self.cache = _empty(self.module.config)
        else:
            self._crop_layers(self.length - length)
        self.length = length

    def saved(self) -> list[dict[str, Any]]:
        """What `restore` needs: references, for layers replace their tensors and never write."""
        return [dict(vars(layer)) for layer in self.cache.layers]

    def restore(self, saved: list[dict[str, Any]]) -> None:
        """Undo a pass that stopped half-way."""
        for layer, fields in zip(self.cache.layers, saved, strict=True):
            vars(layer).update(fields)

    def _crop_layers(self, surplus: int) -> None:
        for layer in self.cache.layers:
            if isinstance(layer, WindowLayer) and not layer.can_forget(surplus):
                raise Refused(
                    "the model's sliding attention window has passed the rows that would be kept; "
                    "open a new session"
                )
        for layer in self.cache.layers:
            layer.crop(-surplus)


class WindowLayer(DynamicSlidingWindowLayer):  # type: ignore[no-untyped-call]
    """The library's sliding layer, which can take back up to SLACK positions."""

    keys: Any
    values: Any

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add rows (1, heads, n, width); give those that the new ones may look at."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        count = key_states.shape[-2]
        self.cumulative_length += count
        keys = torch.cat([self.keys, key_states], dim=-2)
        values = torch.cat([self.values, value_states], dim=-2)
        kept = self.sliding_window - 1 + SLACK
        self.keys, self.values = keys[:, :, -kept:], values[:, :, -kept:]
        seen = self.sliding_window - 1 + count
        return keys[:, :, -seen:], values[:, :, -seen:]

    def can_forget(self, surplus: int) -> bool:
        """Whether what remains is all that the next row may look at."""
        if not self.is_initialized:
            return True
        remaining = self.cumulative_length - surplus
        needed = min(self.sliding_window - 1, remaining)
        return bool(self.keys.shape[-2] - surplus >= needed)

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last `-tokens_to_remove` rows; `can_forget` was asked before."""
        if tokens_to_remove < 0 and self.is_initialized:
            self.keys = self.keys[:, :, :tokens_to_remove]
            self.values = self.values[:, :, :tokens_to_remove]
            self.cumulative_length += tokens_to_remove


def _empty(config: Any) -> Any:
    cache: Any = DynamicCache(config=config)
    cache.layers = [
        WindowLayer(layer.sliding_window) if layer.is_sliding else layer for layer in cache.layers
    ]
    return cache
