"""What a Session has on one Stage: its KV cache and its own position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import DynamicCache

from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from diffuse_core.adapters.executor.part_module import PartModule
    from diffuse_core.domain.slices import Slice


class SessionCache:
    """KV of one Session through one part. `length` counts its rows, whatever a layer says.

    Layers differ: one with a sliding window forgets, and its own count is not the position.
    """

    def __init__(self, part: Slice, budget: int, module: PartModule) -> None:
        self.part = part
        self.budget = budget
        self.module = module
        self.length = 0
        self.cache: Any = DynamicCache(config=module.config)

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
            self.cache = DynamicCache(config=self.module.config)
        else:
            self._crop_layers(self.length - length)
        self.length = length

    def _crop_layers(self, surplus: int) -> None:
        for layer in self.cache.layers:
            if layer.is_sliding and self.length >= layer.sliding_window:
                raise Refused(
                    "the model's sliding attention window has passed the rows that would be kept; "
                    "open a new session"
                )
        for layer in self.cache.layers:
            layer.crop(-surplus)
