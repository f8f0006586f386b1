"""Matrices in every form, made of known numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from diffuse_core.adapters.executor.lean.matrices import Int4Matrix, Int8Matrix, Matrix, stacked

if TYPE_CHECKING:
    from collections.abc import Callable

    Maker = Callable[[int, int, torch.Tensor | None], "Made"]

FP32, BF16 = torch.float32, torch.bfloat16


class Made(NamedTuple):
    """A matrix, and what it stands for in float64."""

    matrix: Matrix
    weight: torch.Tensor
    dtype: torch.dtype


def seeded(rows: int, columns: int) -> torch.Generator:
    return torch.Generator().manual_seed(1000 * rows + columns)


def dense(form: type, dtype: torch.dtype) -> Maker:
    def make(rows: int, columns: int, bias: torch.Tensor | None) -> Made:
        weight = torch.randn((rows, columns), generator=seeded(rows, columns)).to(dtype)
        kept = weight.double()
        return Made(form(weight, None if bias is None else bias.to(dtype)), kept, dtype)

    return make


def kernel_form(
    codes: torch.Tensor, scales: torch.Tensor, block: int = 16
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes 0..15 and (rows, groups, 2) scales as the kernel takes them: whole blocks of rows."""
    more = -len(codes) % block
    packed = torch.cat((codes, torch.full((more, codes.shape[1]), 5)))
    beyond = torch.full((more, *scales.shape[1:]), 3.0, dtype=BF16)
    whole = torch.cat((scales, beyond)).permute(1, 0, 2).contiguous()
    return torch._convert_weight_to_int4pack_for_cpu(packed.to(torch.int32), 1), whole


def int4(rows: int, columns: int, bias: torch.Tensor | None, block: int = 16) -> Made:
    own = seeded(rows, columns)
    codes = torch.randint(0, 16, (rows, columns), generator=own)
    scales = torch.randn((rows, columns // 32, 2), generator=own).to(BF16)
    matrix = Int4Matrix(*kernel_form(codes, scales, block), rows, bias)
    scale, offset = scales.double().unsqueeze(2).unbind(3)
    weight = scale * (codes.view(rows, -1, 32).double() - 8) + offset
    return Made(matrix, weight.flatten(1), BF16)


def int8(rows: int, columns: int, bias: torch.Tensor | None, block: int = 16) -> Made:
    own = seeded(rows, columns)
    codes = torch.randint(-128, 128, (rows, columns), generator=own)
    scale = torch.rand((rows, columns // 32), generator=own).add_(0.01).to(BF16)
    upper, lower = codes.div(16, rounding_mode="floor"), codes.remainder(16)
    scales = torch.stack((torch.cat((16 * scale, scale), 1), torch.zeros(rows, columns // 16)), 2)
    # The kernel counts from 8: upper halves go from -8 to 7, lower ones from 0 to 15.
    scales[:, columns // 32 :, 1] = 8 * scale
    matrix = Int8Matrix(
        *kernel_form(torch.cat((upper + 8, lower), 1), scales.to(BF16), block), rows, bias
    )
    weight = codes.view(rows, -1, 32).double() * scale.double().unsqueeze(2)
    return Made(matrix, weight.flatten(1), BF16)


def stack(*makers: Maker) -> Maker:
    """Parts of different heights, so that a wrong split shows."""

    def make(rows: int, columns: int, bias: torch.Tensor | None) -> Made:
        heights = [16 * (i + 1) for i in range(len(makers) - 1)] + [rows]
        ends = torch.tensor(heights).cumsum(0).tolist()
        biases = [None] * len(heights)
        if bias is not None:
            biases = [bias[end - n : end].clone() for end, n in zip(ends, heights, strict=True)]
        parts = [
            maker(height, columns, own)
            for maker, height, own in zip(makers, heights, biases, strict=True)
        ]
        whole = stacked([part.matrix for part in parts])
        return Made(whole, torch.cat([part.weight for part in parts]), parts[0].dtype)

    return make
