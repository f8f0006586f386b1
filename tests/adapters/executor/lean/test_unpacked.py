"""Matrices unpacked or widened for large pieces of prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from diffuse_core.adapters.executor.engine import Rows
from diffuse_core.adapters.executor.lean import bf16, unpacked
from diffuse_core.adapters.executor.lean.engine import LeanEngine
from diffuse_core.adapters.executor.lean.matrices import Int8Matrix, PlainMatrix, packed_half
from diffuse_core.adapters.executor.lean.unpacked import (
    LEAST_ROWS,
    UnpackedMatrix,
    WidenedMatrix,
    for_pieces,
    least_rows,
)
from diffuse_core.domain.slices import Slice
from tests.adapters.executor.lean.made_matrices import BF16, dense, int4, int8, seeded, stack
from tests.adapters.executor.lean.models import (
    LAYERS,
    all_equal,
    alone,
    lean_executor,
    some_rows,
    tables,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.shapes import Contract

WHOLE = Slice(0, LAYERS)
BLOCK = 64
PIECE = LEAST_ROWS + 5
WAYS: list[tuple[Contract, bool]] = [
    ("int8", False),
    ("int4", False),
    ("int8", True),
    ("int4", True),
    ("bf16", True),
]
"""Contracts, and whether bf16 is slow; where it is not, bf16 has no second way."""

pytestmark = pytest.mark.skipif(packed_half() is None, reason="the kernel's layout is not known")


def pretend(monkeypatch: pytest.MonkeyPatch, *, slow: bool) -> None:
    """Be a CPU on which bf16 is slow, or is not, whatever this one is."""
    where = (BF16, "cpu") if slow else None
    monkeypatch.setattr(bf16, "is_slow", lambda *what: what == where)


def new_engine(name: str, contract: Contract, start: int = 0, end: int = LAYERS) -> LeanEngine:
    """One that was made for the CPU that this one pretends to be, and is shared with nobody."""
    engine = lean_executor.__wrapped__(name, contract, start, end)._engine
    assert isinstance(engine, LeanEngine)
    return engine


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("numbers", [2**20, 1])
@pytest.mark.parametrize("make", [int4, int8])
@pytest.mark.parametrize(("rows", "columns"), [(64, 32), (80, 96), (200, 64), (1024, 96)])
def test_numbers_are_what_the_kernel_multiplies_with(
    make: Callable,
    rows: int,
    columns: int,
    numbers: int,
    slow: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, slow=slow)
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


@pytest.mark.parametrize("numbers", [2**20, 1, 200])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(64, 32), (81, 96), (1024, 33)])
def test_a_widened_product_is_rounded_once(
    rows: int, columns: int, biased: bool, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, slow=True)
    monkeypatch.setattr(unpacked, "NUMBERS", numbers)
    bias = torch.randn(rows, generator=seeded(3, rows)).to(BF16) if biased else None
    made = dense(PlainMatrix, BF16)(rows, columns, bias)
    many = for_pieces(made.matrix)
    assert isinstance(many, WidenedMatrix)
    x = torch.randn((7, columns), generator=seeded(1, columns)).to(BF16)
    exact = x.double() @ made.weight.t() + (0 if bias is None else bias.double())
    found = many(x)
    assert (found.dtype, found.is_contiguous()) == (BF16, True)
    # Half a step of bf16, and what fp32 loses on the way.
    assert bool(((found.double() - exact).abs() <= exact.abs() * 2**-8 + 1e-4).all())


def test_the_parts_of_a_stack_are_unpacked_and_others_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, slow=False)
    made = stack(lambda *given: int4(*given, BLOCK), dense(PlainMatrix, BF16))(64, 64, None)
    x = torch.randn((3, 64), generator=seeded(1, 1)).to(BF16)
    many = for_pieces(made.matrix)
    assert torch.allclose(many(x).double(), x.double() @ made.weight.t(), rtol=0.02, atol=0.2)
    plain = dense(PlainMatrix, BF16)(16, 32, None).matrix
    assert for_pieces(plain) is plain


def test_fp32_is_nowhere_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, slow=True)
    plain = dense(PlainMatrix, torch.float32)(16, 32, None).matrix
    assert for_pieces(plain) is plain
    assert least_rows(torch.float32, "cpu") == least_rows(BF16, "cuda") == LEAST_ROWS
    assert least_rows(BF16, "cpu") == bf16.LEAST_ROWS


def test_a_matrix_of_parts_of_blocks_is_multiplied_as_ever() -> None:
    matrix = int8(80, 64, None).matrix
    assert isinstance(matrix, Int8Matrix)
    assert for_pieces(matrix) is matrix


@pytest.mark.parametrize(("contract", "slow"), WAYS)
@torch.inference_mode()
def test_only_a_pieces_own_size_decides(
    contract: Contract, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if contract == "bf16" and not bf16.is_slow(BF16, "cpu"):
        pytest.skip("matrices that are not packed are multiplied by another kernel here")
    pretend(monkeypatch, slow=slow)
    engine = new_engine("llama", contract)
    least = least_rows(BF16, "cpu")
    budget = 2 * PIECE
    counts = {0: PIECE, 1: 1, 2: least - 1, 3: least, 4: 3}
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


@pytest.mark.parametrize(("contract", "slow"), WAYS)
@torch.inference_mode()
def test_slices_give_what_the_whole_gives(
    contract: Contract, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, slow=slow)
    rows = some_rows(WHOLE, PIECE, contract, 5)
    engine = new_engine("qwen3", contract)
    wanted = alone(engine, engine.open(WHOLE, PIECE), rows)
    x: torch.Tensor | None = rows
    for start, end in ((0, 2), (2, 5), (5, LAYERS)):
        assert x is not None
        piece = new_engine("qwen3", contract, start, end)
        x = alone(piece, piece.open(Slice(start, end), PIECE), x)
    assert x is not None
    assert wanted is not None
    assert torch.equal(x, wanted)


@pytest.mark.parametrize(("contract", "slow"), WAYS)
@torch.inference_mode()
def test_a_large_piece_is_close_to_the_kernels(
    contract: Contract, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, slow=slow)
    rows = some_rows(WHOLE, PIECE, contract, 6)
    one = new_engine("llama", contract)
    large = alone(one, one.open(WHOLE, PIECE), rows)
    monkeypatch.setattr(bf16 if slow else unpacked, "LEAST_ROWS", PIECE + 1)
    other = new_engine("llama", contract)
    kernel = alone(other, other.open(WHOLE, PIECE), rows)
    assert large is not None
    assert kernel is not None
    # Another way was taken, and to the same place; fp32 may add up to the very same.
    assert one._piece <= PIECE < other._piece
    assert slow or not torch.equal(large, kernel)
    assert float((large - kernel).norm() / kernel.norm()) < 0.1
