"""Sources of matrices that are stored in codes, and one that fails, over tensors in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from diffuse_core.model_ports import GroupCodes, RawTensor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from diffuse_core.model_ports import Progress

GROUP = 32


@dataclass(frozen=True)
class Codes:
    """A 4-bit matrix: codes (rows, columns), scales and minima (rows, columns / 32)."""

    codes: torch.Tensor
    scales: torch.Tensor
    minima: torch.Tensor

    def numbers(self) -> torch.Tensor:
        """What they stand for, in fp32."""
        groups = self.codes.view(len(self.codes), -1, GROUP).float()
        return (groups * self.scales.unsqueeze(2) + self.minima.unsqueeze(2)).flatten(1)


def random_codes(rows: int, columns: int, seed: int = 0) -> Codes:
    """Codes of all values, scales and minima of either sign and of many sizes."""
    generator = torch.Generator().manual_seed(seed * 7919 + rows * 31 + columns)

    def spread() -> torch.Tensor:
        shape = (rows, columns // GROUP)
        sizes = 10 ** (torch.rand(shape, generator=generator) * 4 - 4)
        return sizes * torch.randn(shape, generator=generator).sign()

    codes = torch.randint(0, 16, (rows, columns), generator=generator, dtype=torch.uint8)
    return Codes(codes, spread(), spread())


@dataclass
class TensorSource:
    """What of model_ports.WeightSource the forms ask for. Pieces have `rows` rows each."""

    tensors: dict[str, torch.Tensor]
    coded: dict[str, Codes] = field(default_factory=dict)
    bits: dict[str, int] = field(default_factory=dict)
    rows: int = 7
    claimed: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes that the headers say, where they are not those of the numbers."""
    group: int = GROUP

    def __post_init__(self) -> None:
        self.tensors = {
            **{name: codes.numbers() for name, codes in self.coded.items()},
            **self.tensors,
        }

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.tensors)

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        if name not in self.tensors:
            return None
        return self.claimed.get(name, tuple(self.tensors[name].shape))

    def bits_of(self, name: str) -> int:
        usual = 4 if name in self.coded else 8 * self.tensors[name].element_size()
        return self.bits.get(name, usual)

    def fetch(self, names: Collection[str], progress: Progress) -> None:
        progress(1.0)

    def pieces(self, name: str) -> Iterator[RawTensor]:
        tensor = self.tensors[name]
        kind = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}[tensor.dtype]
        for block in tensor.split(self.rows):
            data = block.contiguous().view(torch.uint8).numpy().tobytes()
            yield RawTensor(kind, tuple(block.shape), data)

    def codes(self, name: str) -> Iterator[GroupCodes] | None:
        return self._codes(self.coded[name]) if name in self.coded else None

    def _codes(self, own: Codes) -> Iterator[GroupCodes]:
        for at in range(0, len(own.codes), self.rows):
            part = slice(at, at + self.rows)
            yield GroupCodes(
                tuple(own.codes[part].shape),
                self.group,
                own.codes[part].contiguous().numpy().tobytes(),
                own.scales[part].contiguous().numpy().tobytes(),
                own.minima[part].contiguous().numpy().tobytes(),
            )
