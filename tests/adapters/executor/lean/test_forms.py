"""What the forms hold is what the files say: exactly in 4 bits, rounded as told in the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

from diffuse_core.adapters.executor.lean import forms as forms_module
from diffuse_core.adapters.executor.lean.forms import (
    Forms,
    Piece,
    coded,
    estimated,
    interleaved,
    regrouped,
)
from diffuse_core.adapters.executor.lean.matrices import (
    CodedTable,
    Int4Matrix,
    Int8Matrix,
    Matrix,
    Stack,
)
from diffuse_core.domain.shapes import end_bits, matrix_bits, matrix_bytes
from diffuse_core.errors import ModelUnusable
from tests.adapters.executor.lean.sources import GROUP, Codes, TensorSource, random_codes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import WeightSource

BF16 = torch.bfloat16


def forms(source: TensorSource, contract: Contract = "int4") -> Forms:
    return Forms(cast("WeightSource", source), contract, "cpu")


def held(matrix: Matrix) -> torch.Tensor:
    """The numbers that a matrix multiplies by, in its type: its product with the identity."""
    eye = torch.eye(matrix.columns)
    parts = matrix.parts if isinstance(matrix, Stack) else (matrix,)
    columns = []
    for part in parts:
        dtype = BF16 if isinstance(part, Int4Matrix | Int8Matrix) else None
        try:
            columns.append(part(eye.to(dtype or torch.float32)))
        except RuntimeError:
            columns.append(part(eye.to(BF16)))
    return torch.cat(columns, 1).t()


def as_held(codes: Codes) -> torch.Tensor:
    """A scale and the number of code 8 are rounded to bf16 once, and so is a single number."""
    scale = codes.scales.to(BF16).float().unsqueeze(2)
    middle = (codes.minima + 8 * codes.scales).to(BF16).float().unsqueeze(2)
    groups = codes.codes.view(len(codes.codes), -1, GROUP).float() - 8
    return (scale * groups + middle).flatten(1).to(BF16)


@pytest.mark.parametrize("contract", ["int4", "int8"])
@pytest.mark.parametrize("shape", [(16, 32), (64, 96), (144, 64), (101, 32), (1, 64)])
def test_the_files_own_codes_are_held(contract: Contract, shape: tuple[int, int]) -> None:
    codes = random_codes(*shape)
    matrix = forms(TensorSource({}, {"w": codes}), contract).matrix([Piece("w")])
    assert isinstance(matrix, Int4Matrix)
    assert torch.equal(held(matrix), as_held(codes))


@pytest.mark.parametrize("rows_a_piece", [1, 5, 7, 64, 100])
def test_pieces_may_end_anywhere(rows_a_piece: int) -> None:
    codes = {f"w{i}": random_codes(rows, 64, i) for i, rows in enumerate((48, 80, 65))}
    source = TensorSource({}, codes, rows=rows_a_piece)
    matrix = forms(source).matrix([Piece(name) for name in codes])
    assert torch.equal(held(matrix), torch.cat([as_held(own) for own in codes.values()]))


@pytest.mark.parametrize("contract", ["fp32", "bf16", "int8", "int4"])
def test_blocks_change_nothing(contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(5)
    numbers = {
        name: torch.randn((rows, 96), generator=generator)
        for name, rows in (("a", 150), ("b", 210))
    }
    biases = {
        name + ".bias": torch.randn(len(own), generator=generator) for name, own in numbers.items()
    }
    names = [Piece(name) for name in numbers]
    bias_names = [Piece(name) for name in biases]

    def made() -> Matrix:
        source = TensorSource({**numbers, **biases}, rows=11)
        return forms(source, contract).matrix(names, bias_names)

    x = torch.randn((8, 96), generator=generator).to(BF16 if contract != "fp32" else torch.float32)
    one = made()
    monkeypatch.setattr(forms_module, "BLOCK_BYTES", 1)
    many = made()
    assert isinstance(many, Stack) == (contract in ("fp32", "bf16"))
    assert torch.equal(held(one), held(many))
    assert (one.rows, one.columns, one.nbytes) == (many.rows, many.columns, many.nbytes)
    # The products too, with the biases: bit for bit.
    assert torch.equal(one(x), many(x))
    assert torch.equal(one.gate(x), many.gate(x))


@pytest.mark.parametrize("contract", ["fp32", "bf16"])
def test_dense_matrices_are_held_as_they_are_rounded(contract: Contract) -> None:
    stored = {
        "fp32": torch.randn(40, 24),
        "fp16": torch.randn(30, 24).half(),
        "bf16": torch.randn(20, 24).to(BF16),
    }
    matrix = forms(TensorSource(stored), contract).matrix([Piece(name) for name in stored])
    dtype = torch.float32 if contract == "fp32" else BF16
    wanted = torch.cat([tensor.to(dtype) for tensor in stored.values()])
    assert torch.equal(held(matrix).to(dtype), wanted)
    assert matrix.nbytes == 90 * 24 * dtype.itemsize


def test_heads_are_interleaved_with_biases_and_norms() -> None:
    width, heads, kv_heads = 8, 6, 2
    q, k = random_codes(heads * width, 64, 1), random_codes(kv_heads * width, 64, 2)
    v = random_codes(kv_heads * width, 64, 3)
    biases = {
        "q.b": torch.randn(heads * width),
        "k.b": torch.randn(kv_heads * width),
        "v.b": torch.randn(kv_heads * width),
    }
    source = TensorSource({**biases, "norm": torch.arange(8.0)}, {"q": q, "k": k, "v": v}, rows=3)
    own = forms(source)
    matrix = own.matrix(
        [Piece("q", width), Piece("k", width), Piece("v")],
        [Piece("q.b", width), Piece("k.b", width), Piece("v.b")],
    )
    # Row i of a head beside row i + width / 2.
    order = torch.tensor(
        [head * width + at + half for head in range(heads) for at in range(4) for half in (0, 4)]
    )
    shared = order[: kv_heads * width]
    wanted = torch.cat([as_held(q)[order], as_held(k)[shared], as_held(v)])
    bias = torch.cat([biases["q.b"][order], biases["k.b"][shared], biases["v.b"]]).to(BF16)
    assert torch.equal(matrix(torch.zeros((2, 64), dtype=BF16))[1], bias)
    assert torch.equal(held(matrix), (wanted + bias.unsqueeze(1)).to(BF16))
    assert own.vector(Piece("norm", 8)).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert own.vector(Piece("norm")).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_interleaving_is_by_head() -> None:
    rows = torch.arange(12).unsqueeze(1)
    assert interleaved(rows, 6).flatten().tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert interleaved(rows, 0) is rows


def test_one_fused_matrix_of_4_and_8_bits_with_biases() -> None:
    q, k = random_codes(96, 64, 1), random_codes(32, 64, 2)
    v = torch.randn(64, 64)
    biases = {name: torch.randn(rows) for name, rows in (("qb", 96), ("kb", 32), ("vb", 64))}
    source = TensorSource({"v": v, **biases}, {"q": q, "k": k}, bits={"v": 6})
    matrix = forms(source).matrix(
        [Piece("q"), Piece("k"), Piece("v")], [Piece("qb"), Piece("kb"), Piece("vb")]
    )
    assert isinstance(matrix, Stack)
    assert [type(part) for part in matrix.parts] == [Int4Matrix, Int8Matrix]
    bias = torch.cat(list(biases.values())).to(BF16)
    zero = matrix(torch.zeros((2, 64), dtype=BF16))[0]
    assert torch.equal(zero, bias)
    eight = forms(TensorSource({"v": v}, bits={"v": 6})).matrix([Piece("v")])
    wanted = torch.cat([as_held(q), as_held(k), held(eight)])
    assert torch.equal(held(matrix), (wanted + bias.unsqueeze(1)).to(BF16))
    weights = matrix_bytes(4, 128, 64) + matrix_bytes(8, 64, 64)
    assert matrix.nbytes == weights + 2 * 192


@pytest.mark.parametrize(
    ("contract", "stored", "columns", "bits"),
    [
        ("int4", 16, 64, 4),
        ("int4", 32, 64, 4),
        ("int4", 8, 64, 8),
        ("int4", 5, 64, 8),
        ("int4", 4, 64, 4),
        ("int4", 4, 48, 16),
        ("int8", 4, 64, 4),
        ("int8", 8, 64, 8),
        ("int8", 16, 64, 8),
        ("int8", 16, 40, 16),
        ("bf16", 4, 64, 16),
        ("fp32", 4, 64, 32),
    ],
)
def test_what_is_held_is_what_is_reckoned_with(
    contract: Contract, stored: int, columns: int, bits: int
) -> None:
    rows = 64
    assert matrix_bits(contract, stored, columns) == bits
    if stored == 4 and columns % GROUP == 0:
        source = TensorSource({}, {"w": random_codes(rows, columns)})
    else:
        source = TensorSource({"w": torch.randn(rows, columns)}, bits={"w": stored})
    assert forms(source, contract).matrix([Piece("w")]).nbytes == matrix_bytes(bits, rows, columns)
    own = forms(source, contract)
    end = end_bits(contract, columns)
    assert own.head("w").nbytes == matrix_bytes(end, rows, columns)


def test_estimated_groups_keep_their_ends_and_stray_half_a_step() -> None:
    rows = torch.randn((50, 96), generator=torch.Generator().manual_seed(1))
    codes, scale, minimum = estimated(rows)
    assert codes.dtype == torch.uint8
    assert int(codes.min()) == 0
    assert int(codes.max()) == 15
    back = Codes(codes, scale, minimum).numbers().view(50, 3, GROUP)
    groups = rows.view(50, 3, GROUP)
    assert bool(((back - groups).abs() <= scale.unsqueeze(2) * 0.5001).all())
    assert torch.allclose(back.amin(2), groups.amin(2), atol=1e-6)
    assert torch.allclose(back.amax(2), groups.amax(2), atol=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e30, -1e30, 1e-30, -1e-38])
@pytest.mark.parametrize("contract", ["int4", "int8"])
def test_a_constant_row_is_held_as_that_constant(contract: Contract, value: float) -> None:
    matrix = forms(TensorSource({"w": torch.full((16, 64), value)}), contract).matrix([Piece("w")])
    found = held(matrix).double()
    assert bool(torch.isfinite(found).all())
    # Below what a scale may be, all is zero enough.
    assert torch.allclose(found, torch.full_like(found, value), rtol=2**-7, atol=1e-11)


def test_huge_and_tiny_numbers_in_one_group_stay_finite() -> None:
    row = torch.zeros(1, 64)
    row[0, 0], row[0, 1], row[0, 33] = 1e38, -1e38, 1e-38
    for contract in ("int4", "int8"):
        matrix = forms(TensorSource({"w": row.repeat(16, 1)}), contract).matrix([Piece("w")])
        found = held(matrix).float()
        assert bool(torch.isfinite(found).all())
        assert torch.allclose(found[:, :2], row[:, :2].repeat(16, 1), rtol=2**-6)


def test_8_bits_stray_half_a_step_and_take_over_codes() -> None:
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn((48, 96), generator=generator)
    codes, scale = coded(rows)
    groups = rows.view(48, 3, GROUP)
    step = scale.float().unsqueeze(2)
    strays = (codes.view(48, 3, GROUP).float() * step - groups).abs()
    # A scale rounded down lets the greatest stray by what it lost: 127 * 2^-9 of a step at most.
    assert bool((strays <= step * 0.76).all())
    own = torch.randint(-127, 128, (48, 96), generator=generator).view(48, 3, GROUP)
    own[..., 7] = 127
    scales = torch.rand((48, 3, 1), generator=generator) + 0.01
    taken, held_scales = coded((own * scales.half().float()).flatten(1))
    assert torch.equal(taken.view_as(own).long(), own)
    assert torch.equal(held_scales, scales.half().float().squeeze(2).to(BF16))


@pytest.mark.parametrize("columns", [64, 96])
def test_8_bit_matrices_and_tables_hold_the_same_numbers(columns: int) -> None:
    rows = torch.randn((37, columns), generator=torch.Generator().manual_seed(4))
    rows[5] = 0
    source = TensorSource({"w": rows})
    codes, scale = coded(rows)
    wanted = (codes.view(37, -1, GROUP).float() * scale.float().unsqueeze(2)).flatten(1).to(BF16)
    own = forms(source, "int8")
    assert torch.equal(held(own.matrix([Piece("w")])), wanted)
    table = own.embedding("w")
    assert isinstance(table, CodedTable)
    assert torch.equal(table.rows_of(torch.arange(37)), wanted)
    assert not wanted[5].any()


def test_an_embedding_of_odd_width_is_not_coded() -> None:
    rows = torch.randn(10, 40)
    for contract in ("int8", "int4", "bf16"):
        table = forms(TensorSource({"w": rows}), contract).embedding("w")
        assert torch.equal(cast("torch.Tensor", table), rows.to(BF16))


def test_regrouped_rows_are_the_same_rows() -> None:
    rows = torch.arange(23)
    for sizes in ((23,), (1,) * 23, (7, 7, 7, 2), (10, 13)):
        for size in (1, 5, 23, 40):
            stream = iter([(part, part * 2) for part in rows.split(list(sizes))])
            blocks = list(regrouped(stream, size))
            assert [len(block[0]) for block in blocks[:-1]] == [size] * (len(blocks) - 1)
            assert torch.equal(torch.cat([block[0] for block in blocks]), rows)
            assert torch.equal(torch.cat([block[1] for block in blocks]), rows * 2)


CLAIMS = {"rows missing": (40, 64), "rows too many": (30, 64)}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("contract", ["fp32", "bf16", "int8", "int4"])
@pytest.mark.parametrize("stored_in_codes", [False, True])
def test_files_that_end_early_or_late_are_refused(
    claim: str, contract: Contract, stored_in_codes: bool
) -> None:
    codes = random_codes(35, 64)
    plain = {} if stored_in_codes else {"w": codes.numbers()}
    source = TensorSource(plain, {"w": codes} if stored_in_codes else {})
    source.claimed["w"] = CLAIMS[claim]
    for make in ("matrix", "embedding", "head"):
        argument: Any = [Piece("w")] if make == "matrix" else "w"
        with pytest.raises(ModelUnusable, match="tensor w was not read in its own shape"):
            getattr(forms(source, contract), make)(argument)


@pytest.mark.parametrize("shape", [(3,), (9,)])
def test_vectors_of_another_length_are_refused(shape: tuple[int]) -> None:
    source = TensorSource({"n": torch.zeros(7)}, claimed={"n": shape}, rows=2)
    with pytest.raises(ModelUnusable, match="tensor n"):
        forms(source).vector(Piece("n"))


def test_columns_that_are_not_the_headers_are_refused() -> None:
    source = TensorSource({"w": torch.zeros(16, 32)}, claimed={"w": (16, 64)})
    with pytest.raises(ModelUnusable, match="tensor w"):
        forms(source, "bf16").matrix([Piece("w")])


def test_reading_stops_as_soon_as_there_is_too_much() -> None:
    source = TensorSource({"w": torch.zeros(1000, 32)}, claimed={"w": (16, 32)}, rows=16)
    read = 0

    def counting(name: str) -> Iterator[Any]:
        nonlocal read
        for piece in TensorSource.pieces(source, name):
            read += 1
            yield piece

    source.pieces = counting  # type: ignore[method-assign]
    with pytest.raises(ModelUnusable):
        forms(source, "bf16").matrix([Piece("w")])
    assert read == 2


def test_groups_of_another_size_are_refused() -> None:
    source = TensorSource({}, {"w": random_codes(16, 64)}, group=64)
    with pytest.raises(ModelUnusable, match="groups of 64"):
        forms(source).matrix([Piece("w")])


def test_a_vector_where_a_matrix_should_be_is_refused() -> None:
    with pytest.raises(ModelUnusable, match="a matrix was expected"):
        forms(TensorSource({"w": torch.zeros(16)})).matrix([Piece("w")])
