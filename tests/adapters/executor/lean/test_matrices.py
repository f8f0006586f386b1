"""Every form of a matrix against the product in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from diffuse_core.adapters.executor.lean.matrices import (
    CodedTable,
    PackedMatrix,
    PlainMatrix,
    Stack,
    can_pack,
    stacked,
)
from diffuse_core.domain.shapes import matrix_bytes, table_bytes
from tests.adapters.executor.lean.made_matrices import (
    BF16,
    FP32,
    Made,
    dense,
    int4,
    int8,
    seeded,
    stack,
)

if TYPE_CHECKING:
    from tests.adapters.executor.lean.made_matrices import Maker

ROUNDING = {FP32: 2.0**-24, BF16: 2.0**-8}
"""The largest relative error of a number rounded to the type: half of its last place."""
SHAPES = ((16, 32), (48, 96), (80, 64), (144, 160), (1024, 96))

FORMS: dict[str, Maker] = {
    "plain fp32": dense(PlainMatrix, FP32),
    "plain bf16": dense(PlainMatrix, BF16),
    "packed fp32": dense(PackedMatrix, FP32),
    "packed bf16": dense(PackedMatrix, BF16),
    "int8": int8,
    "int4": int4,
    "stack of packed": stack(*[dense(PackedMatrix, FP32)] * 3),
    "stack of packed bf16": stack(*[dense(PackedMatrix, BF16)] * 2),
    "stack of 4 and 8 bits": stack(int4, int8, int4),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Maker:
    if "packed" in request.param:
        dtype = BF16 if "bf16" in request.param else FP32
        if not can_pack(dtype, "cpu"):
            pytest.skip("this machine has no such kernels")
    return FORMS[request.param]


def rows_of(made: Made, count: int, width: int, seed: int) -> torch.Tensor:
    own = torch.Generator().manual_seed(seed)
    return torch.randn((count, width), generator=own).to(made.dtype)


def close(
    found: torch.Tensor,
    wanted: torch.Tensor,
    made: Made,
    summed: torch.Tensor,
    *steps: torch.Tensor,
) -> None:
    """`found` within the roundings that there may be, and no more.

    An fp32 sum of n products strays by n roundings of `summed`, the sum of their sizes; each of
    the `steps` and the result may be rounded to the type.
    """
    assert found.dtype == made.dtype
    assert found.shape == wanted.shape
    sums = (made.matrix.columns + 2) * ROUNDING[FP32] * summed
    rounded = ROUNDING[made.dtype] * sum((step.abs() for step in steps), wanted.abs())
    # The sums' error is rounded too; exponentials of a vector are not exact in their last place.
    allowed = 1.02 * (sums + rounded) + 8 * ROUNDING[FP32] * wanted.abs()
    assert bool(((found.double() - wanted).abs() <= allowed).all())


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_products(form: Maker, shape: tuple[int, int], biased: bool) -> None:
    rows, columns = shape
    bare = form(rows, columns, None)
    total = bare.matrix.rows
    bias = torch.randn(total, generator=seeded(1, rows)).to(bare.dtype) if biased else None
    made = form(rows, columns, bias)
    for count in (1, 2, 5, 17):
        x = rows_of(made, count, columns, count)
        product = x.double() @ made.weight.t()
        plain = product if bias is None else product + bias.double()
        summed = x.double().abs() @ made.weight.abs().t() + plain.abs()
        beside = rows_of(made, count, total, 99)
        other = beside.double()
        close(made.matrix(x), plain, made, summed, product)
        close(made.matrix.onto(x, beside), plain + other, made, summed, product, plain)
        # SiLU is nowhere steeper than 1.1.
        silu = plain * torch.sigmoid(plain)
        close(made.matrix.gate(x), silu, made, 1.1 * summed, 1.1 * product, 1.1 * plain)
        size = other.abs()
        close(
            made.matrix.times(x, beside),
            plain * other,
            made,
            summed * size,
            product * size,
            plain * size,
        )


def test_the_inputs_stay_as_they_are(form: Maker) -> None:
    made = form(48, 64, None)
    x, beside = rows_of(made, 3, 64, 1), rows_of(made, 3, made.matrix.rows, 2)
    before = x.clone(), beside.clone()
    made.matrix.onto(x, beside)
    made.matrix.times(x, beside)
    made.matrix.gate(x)
    assert torch.equal(x, before[0])
    assert torch.equal(beside, before[1])


@pytest.mark.parametrize(
    ("name", "bits"),
    [("plain fp32", 32), ("packed bf16", 16), ("plain bf16", 16), ("int8", 8), ("int4", 4)],
)
def test_bytes_are_those_that_are_reckoned_with(name: str, bits: int) -> None:
    if name == "packed bf16" and not can_pack(BF16, "cpu"):
        pytest.skip("this machine has no such kernels")
    for rows, columns in SHAPES:
        made = FORMS[name](rows, columns, None)
        assert (made.matrix.rows, made.matrix.columns) == (rows, columns)
        assert made.matrix.nbytes == matrix_bytes(bits, rows, columns)
        bias = torch.zeros(rows, dtype=made.dtype)
        more = FORMS[name](rows, columns, bias).matrix.nbytes - made.matrix.nbytes
        assert more == bias.nbytes


def test_a_stack_weighs_its_parts_and_needs_the_most_rows() -> None:
    parts = [int4(16, 64, None).matrix, dense(PlainMatrix, BF16)(32, 64, None).matrix]
    whole = Stack(parts)
    assert (whole.rows, whole.columns) == (48, 64)
    assert whole.nbytes == matrix_bytes(4, 16, 64) + matrix_bytes(16, 32, 64)
    assert whole.alone == PlainMatrix.alone
    assert stacked(parts[:1]) is parts[0]


def test_rows_of_an_8_bit_table() -> None:
    own = seeded(101, 96)
    codes = torch.randint(-127, 128, (101, 96), generator=own, dtype=torch.int8)
    scales = torch.rand((101, 3), generator=own).to(BF16)
    table = CodedTable(codes, scales)
    ids = torch.tensor([100, 0, 3, 3])
    rows = table.rows_of(ids)
    wanted = codes.view(101, 3, 32).double() * scales.double().unsqueeze(2)
    assert rows.dtype == BF16
    # A code has 7 bits and a scale 8: their product is rounded once.
    assert torch.equal(rows, wanted.flatten(1)[ids].to(BF16))
    assert table.nbytes == table_bytes(8, 101, 96)


@pytest.mark.parametrize("make", [int4, int8])
@pytest.mark.parametrize("rows", [1, 15, 17, 101])
def test_any_number_of_rows_is_held_in_codes(make: Maker, rows: int) -> None:
    made = make(rows, 64, torch.ones(rows, dtype=BF16))
    x = rows_of(made, 3, 64, rows)
    product = x.double() @ made.weight.t()
    found = made.matrix(x)
    assert found.is_contiguous()
    summed = x.double().abs() @ made.weight.abs().t()
    close(found, product + 1, made, summed, product)
    # What the kernel's sixteens of rows take more is less than is reckoned with otherwise.
    assert (
        made.matrix.nbytes < matrix_bytes(8 if make is int8 else 4, rows + 15, 64) + 2 * rows + 1
    )


def test_packed_matrices_are_not_for_other_devices() -> None:
    assert not can_pack(BF16, "cuda")
    assert not can_pack(FP32, "mps")
