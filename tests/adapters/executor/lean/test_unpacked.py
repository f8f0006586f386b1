"""Coded matrices unpacked for large pieces of prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from diffuse_core.adapters.executor.engine import Rows
from diffuse_core.adapters.executor.lean import unpacked
from diffuse_core.adapters.executor.lean.matrices import Int8Matrix, PlainMatrix, packed_half
from diffuse_core.adapters.executor.lean.unpacked import LEAST_ROWS, UnpackedMatrix, for_pieces
from diffuse_core.domain.slices import Slice
from tests.adapters.executor.lean.made_matrices import BF16, dense, int4, int8, seeded, stack
from tests.adapters.executor.lean.models import (
    LAYERS,
    all_equal,
    alone,
    lean_cut,
    lean_engine,
    some_rows,
    tables,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.shapes import Contract

WHOLE = Slice(0, LAYERS)
BLOCK = 64
PIECE = LEAST_ROWS + 5
CODED: tuple[Contract, ...] = ("int8", "int4")

pytestmark = pytest.mark.skipif(packed_half() is None, reason="the kernel's layout is not known")


@pytest.mark.parametrize("numbers", [2**20, 1])
@pytest.mark.parametrize("make", [int4, int8])
@pytest.mark.parametrize(("rows", "columns"), [(64, 32), (80, 96), (200, 64), (1024, 96)])
def test_numbers_are_what_the_kernel_multiplies_with(
    make: Callable, rows: int, columns: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacked, "NUMBERS", numbers)
    bias = torch.randn(rows, generator=seeded(3, rows)).to(BF16)
    made = make(rows, columns, bias, BLOCK)
    many = for_pieces(made.matrix)
    assert isinstance(many, UnpackedMatrix)
    assert (many.rows, many.columns) == (rows, columns)
    # Of a row with a single 1 the product is a number itself, rounded to bf16 as it is here.
    found = many(torch.eye(columns, dtype=BF16))
    wanted = made.weight.to(torch.float32).to(BF16).t() + bias
    assert torch.equal(found, wanted)
    assert found.is_contiguous()


def test_the_parts_of_a_stack_are_unpacked_and_others_stay() -> None:
    made = stack(lambda *given: int4(*given, BLOCK), dense(PlainMatrix, BF16))(64, 64, None)
    x = torch.randn((3, 64), generator=seeded(1, 1)).to(BF16)
    many = for_pieces(made.matrix)
    assert torch.allclose(many(x).double(), x.double() @ made.weight.t(), rtol=0.02, atol=0.2)
    plain = dense(PlainMatrix, BF16)(16, 32, None).matrix
    assert for_pieces(plain) is plain


def test_a_matrix_of_parts_of_blocks_is_multiplied_as_ever() -> None:
    matrix = int8(80, 64, None).matrix
    assert isinstance(matrix, Int8Matrix)
    assert for_pieces(matrix) is matrix


@pytest.mark.parametrize("contract", CODED)
@torch.inference_mode()
def test_only_a_pieces_own_size_decides(contract: Contract) -> None:
    engine = lean_engine("llama", contract)
    budget = 2 * PIECE
    counts = {0: PIECE, 1: 1, 2: LEAST_ROWS - 1, 3: LEAST_ROWS, 4: 3}
    rows = {i: some_rows(WHOLE, count, contract, 70 + i) for i, count in counts.items()}
    shared, lone, bits = ({i: engine.open(WHOLE, budget) for i in counts} for _ in range(3))
    batch = [Rows(shared[i], rows[i], want_logits=True) for i in counts]
    for i, outcome in zip(counts, engine.together(batch), strict=True):
        wanted = alone(engine, lone[i], rows[i])
        work = engine.bit_by_bit(Rows(bits[i], rows[i], want_logits=True))
        while True:
            try:
                next(work)
            except StopIteration as end:
                found = end.value
                break
        assert outcome is not None
        assert wanted is not None
        assert torch.equal(outcome, wanted)
        assert torch.equal(found, wanted)
        assert all_equal(tables(shared[i]), tables(lone[i]))
        assert all_equal(tables(bits[i]), tables(lone[i]))


@pytest.mark.parametrize("contract", CODED)
@torch.inference_mode()
def test_slices_give_what_the_whole_gives(contract: Contract) -> None:
    rows = some_rows(WHOLE, PIECE, contract, 5)
    engine = lean_engine("qwen3", contract)
    wanted = alone(engine, engine.open(WHOLE, PIECE), rows)
    x: torch.Tensor | None = rows
    for executor in lean_cut("qwen3", contract, 0, 2, 5, LAYERS):
        assert x is not None
        x = alone(executor._engine, executor._engine.open(executor.slice, PIECE), x)
    assert x is not None
    assert wanted is not None
    assert torch.equal(x, wanted)


@pytest.mark.parametrize("contract", CODED)
@torch.inference_mode()
def test_a_large_piece_is_close_to_the_kernels(
    contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = some_rows(WHOLE, PIECE, contract, 6)
    engine = lean_engine("llama", contract)
    large = alone(engine, engine.open(WHOLE, PIECE), rows)
    monkeypatch.setattr(unpacked, "LEAST_ROWS", PIECE + 1)
    kernel = alone(engine, engine.open(WHOLE, PIECE), rows)
    assert large is not None
    assert kernel is not None
    # Another way was taken, and to the same place.
    assert not torch.equal(large, kernel)
    assert float((large - kernel).norm() / kernel.norm()) < 0.1
