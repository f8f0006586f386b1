"""Tensors in memory as a source: what the lean engine's own check loads from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.model_ports import RawTensor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import torch

    from diffuse_core.model_ports import GroupCodes, Progress


class MemorySource:
    """What of model_ports.WeightSource loading asks for, over fp32 tensors."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors

    @property
    def names(self) -> frozenset[str]:
        """Every tensor."""
        return frozenset(self._tensors)

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """A tensor's shape, or None."""
        return tuple(self._tensors[name].shape) if name in self._tensors else None

    def bits_of(self, _name: str) -> int:
        """All are fp32."""
        return 32

    def fetch(self, _names: Collection[str], progress: Progress) -> None:
        """Nothing is missing."""
        progress(1.0)

    def pieces(self, name: str) -> Iterator[RawTensor]:
        """A tensor in one piece."""
        tensor = self._tensors[name].contiguous()
        yield RawTensor("fp32", tuple(tensor.shape), tensor.numpy().tobytes())

    def codes(self, _name: str) -> Iterator[GroupCodes] | None:
        """None has codes."""
        return None
