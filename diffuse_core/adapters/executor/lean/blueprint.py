"""What loading for the lean engine has to know of a model: plain facts, that can be kept."""

from __future__ import annotations

import msgspec
import torch

from diffuse_core.adapters.executor.lean.family import Family
from diffuse_core.adapters.executor.lean.rotary import Rotary


class Blueprint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole model as the library would build it, once the lean engine is proven to do the same.

    Only `lean_choice` makes one.
    """

    family: Family
    context: int
    """Positions the model was made for."""
    shapes: dict[str, tuple[int, ...]]
    """Of every parameter, by its name in the library's module."""
    idle: tuple[str, ...]
    """Patterns of left-over tensors that the library knows to be of no use."""
    frequencies: tuple[float, ...]
    """Angles per position (head_dim / 2), in radians."""
    scale: float
    """What queries and keys grow by when they are turned."""

    def rotary(self, device: str) -> Rotary:
        """The rotary positions on a device."""
        return Rotary(
            torch.tensor(self.frequencies, dtype=torch.float32, device=device), self.scale
        )
