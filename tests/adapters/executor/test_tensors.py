"""Bytes to tensors and back, and what is told of rows."""

from __future__ import annotations

import math

import pytest
import torch

from diffuse_core.adapters.executor.tensors import from_wire, rows_rms, to_wire


@pytest.mark.parametrize(("dtype", "kind"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_rows_go_there_and_back_into_memory_of_their_own(dtype: str, kind: torch.dtype) -> None:
    rows = torch.randn((5, 48), generator=torch.Generator().manual_seed(1)).to(kind)
    sent = to_wire(rows[1:4], dtype)
    assert sent.shape == (3, 48)
    carrier = bytearray(sent.data)
    back = from_wire(type(sent)(dtype, sent.shape, memoryview(carrier)))
    carrier[:] = bytes(len(carrier))
    assert torch.equal(back, rows[1:4])
    assert back.data_ptr() % 64 == 0


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_mean_square_of_rows_is_told(kind: torch.dtype) -> None:
    rows = torch.randn((4, 576), generator=torch.Generator().manual_seed(2)).to(kind)
    wanted = rows.double().square().mean(1).sqrt().tolist()
    assert rows_rms(rows) == pytest.approx(wanted, rel=1e-3)


def test_numbers_whose_squares_overflow_are_finite_nevertheless() -> None:
    largest = torch.finfo(torch.float32).max
    rows = torch.tensor([[largest, largest], [1.0, 1.0]])
    assert rows_rms(rows) == pytest.approx([largest, 1.0])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_row_with_a_number_that_is_none_is_not_finite(bad: float, kind: torch.dtype) -> None:
    rows = torch.ones((3, 64), dtype=kind)
    rows[1, 63] = bad
    assert [math.isfinite(one) for one in rows_rms(rows)] == [True, False, True]
