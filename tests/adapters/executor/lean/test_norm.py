"""Root mean square normalisation in one kernel."""

from __future__ import annotations

import pytest
import torch

from diffuse_core.adapters.executor.lean.norm import Norm

EPS = 1e-5
ROUNDING = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("size", [1e-4, 1.0, 3e3, 1e12])
@pytest.mark.parametrize("width", [8, 48, 576, 4096])
def test_rows_are_divided_by_their_root_mean_square(
    dtype: torch.dtype, size: float, width: int
) -> None:
    own = torch.Generator().manual_seed(width)
    # Far from the mean 0, as some models' rows are.
    x = ((torch.randn((5, width), generator=own) + 3) * size).to(dtype)
    weight = torch.randn(width, generator=own).to(dtype)
    exact = x.double()
    wanted = exact / (exact.square().mean(1, keepdim=True) + EPS).sqrt() * weight.double()
    found = Norm(weight, EPS)(x)
    assert (found.dtype, found.shape) == (dtype, x.shape)
    assert found.is_contiguous()
    # Rounded once; what is summed before is fp32 and its errors are of the sum, not the number.
    allowed = 1.01 * ROUNDING[dtype] + 64 * ROUNDING[torch.float32]
    assert bool(((found.double() - wanted).abs() <= allowed * wanted.abs()).all())


def test_zeros_stay_zeros_and_a_bad_row_stays_alone() -> None:
    norm = Norm(torch.ones(48), EPS)
    x = torch.randn((4, 48), generator=torch.Generator().manual_seed(1))
    wanted = norm(x)
    x[1] = 0
    x[2, 5] = float("nan")
    found = norm(x)
    assert not found[1].any()
    assert bool(found[2].isnan().any())
    assert torch.equal(found[[0, 3]], wanted[[0, 3]])


@pytest.mark.parametrize("dtype", ROUNDING)
def test_a_row_is_the_same_whatever_rows_go_with_it(dtype: torch.dtype) -> None:
    own = torch.Generator().manual_seed(2)
    norm = Norm(torch.randn(96, generator=own).to(dtype), EPS)
    x = torch.randn((33, 96), generator=own).to(dtype)
    whole = norm(x)
    for at in (0, 7, 32):
        assert torch.equal(norm(x[at : at + 1]), whole[at : at + 1])
    assert torch.equal(norm(x[3:20]), whole[3:20])
