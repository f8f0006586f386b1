"""Codes of a GGUF file: the numbers they stand for are those that the library decodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_core.adapters.models.gguf_codes import read_codes, read_pieces
from diffuse_core.adapters.models.gguf_header import CODES
from diffuse_core.adapters.models.gguf_source import GgufSource
from diffuse_core.adapters.models.stored_tensor import StoredTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from diffuse_core.model_ports import GroupCodes

Q = gguf.GGMLQuantizationType
FOUR_BITS = ("Q4_0", "Q4_1", "Q4_K")
SCALES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
}
"""Where in a block its fp16 numbers are; every other byte may have any value."""
PIECE = "diffuse_core.adapters.models.gguf_codes.PIECE_BYTES"


def by_hand(path: Path, kind: str, shape: tuple[int, ...], seed: int) -> StoredTensor:
    """A tensor of random codes behind a few bytes that are not its own."""
    number = next(n for n, (name, _, _) in CODES.items() if name == kind)
    _, block, size = CODES[number]
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (int(np.prod(shape)) // block, size), np.uint8)
    for start in SCALES[kind]:
        scales = (rng.standard_normal(len(blocks)) / 16).astype(np.float16)
        blocks[:, start : start + 2] = scales.view(np.uint8).reshape(-1, 2)
    path.write_bytes(b"before!" + blocks.tobytes() + b"after")
    return StoredTensor("x", "x", kind, shape, str(path), 7, blocks.size)


def expected(tensor: StoredTensor, path: Path) -> np.ndarray:
    raw = np.frombuffer(path.read_bytes()[7:-5], np.uint8)
    return gguf.quants.dequantize(raw.reshape(1, -1), Q[tensor.kind]).reshape(tensor.shape)


def joined(pieces: Iterable, kind: str = "data", dtype: type = np.float32) -> np.ndarray:
    return np.concatenate([np.frombuffer(getattr(piece, kind), dtype) for piece in pieces])


def numbers_of(codes: list[GroupCodes]) -> np.ndarray:
    values = joined(codes, "codes", np.uint8)
    assert values.max() <= 15
    groups = values.reshape(-1, 32).astype(np.float32)
    numbers = joined(codes, "scales")[:, None] * groups + joined(codes, "minima")[:, None]
    return numbers.reshape(-1, codes[0].shape[1])


@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("shape", [(24, 512), (1536,), (256,)])
def test_any_codes_decode_as_by_the_library(
    tmp_path: Path, kind: str, shape: tuple[int, ...]
) -> None:
    tensor = by_hand(tmp_path / "x", kind, shape, seed=3)
    pieces = list(read_pieces(tensor, 0))
    assert np.array_equal(joined(pieces).reshape(shape), expected(tensor, tmp_path / "x"))
    assert {piece.shape[1:] for piece in pieces} == {shape[1:]}


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(FOUR_BITS),
    rows=st.integers(1, 40),
    groups=st.integers(1, 4),
    piece=st.sampled_from([1, 2000, 2**22]),
    seed=st.integers(0, 2**32 - 1),
)
def test_scale_times_code_plus_minimum_is_bit_for_bit_the_number(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    rows: int,
    groups: int,
    piece: int,
    seed: int,
) -> None:
    path = tmp_path_factory.mktemp("codes") / "x"
    tensor = by_hand(path, kind, (rows, groups * 256), seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PIECE, piece)
        codes = list(read_codes(tensor, 0))
    assert {part.group for part in codes} == {32}
    assert sum(part.shape[0] for part in codes) == rows
    exact = expected(tensor, path)
    assert np.array_equal(numbers_of(codes), exact)
    assert np.array_equal(joined(read_pieces(tensor, 0)).reshape(exact.shape), exact)


@pytest.mark.parametrize("kind", sorted(set(SCALES) - set(FOUR_BITS)))
def test_other_encodings_have_no_such_codes(tmp_path: Path, kind: str) -> None:
    tensor = by_hand(tmp_path / "x", kind, (4, 256), seed=1)
    assert read_codes(tensor, 0) is None
    assert tensor.bits != 4


def test_a_row_of_numbers_has_no_such_codes(tmp_path: Path) -> None:
    assert read_codes(by_hand(tmp_path / "x", "Q4_1", (64,), seed=1), 0) is None


@pytest.mark.parametrize("kind", [Q.Q4_0, Q.Q4_1, Q.Q8_0, Q.F16, Q.F32])
@pytest.mark.parametrize("piece", [1, 5000, 2**22])
def test_heads_are_put_in_order_whatever_the_pieces(
    make_model: Callable,
    write_gguf: Callable,
    read: Callable,
    monkeypatch: pytest.MonkeyPatch,
    kind: Q,
    piece: int,
) -> None:
    model = make_model(head_dim=16, attention_bias=True)
    source = GgufSource(write_gguf(model, kind))
    monkeypatch.setattr(PIECE, piece)
    for name, tensor in model.state_dict().items():
        if tensor.dim() == 2:
            coded = gguf.quants.dequantize(gguf.quants.quantize(tensor.numpy(), kind), kind)
            wanted = torch.from_numpy(coded)
            codes = source.codes(name)
            assert (codes is not None) == (source.bits_of(name) == 4)
            if codes is not None:
                assert np.array_equal(numbers_of(list(codes)), coded)
        else:
            wanted = tensor
        assert torch.equal(read(source, name).float(), wanted), name


def test_pieces_of_a_reordered_matrix_are_whole_heads(
    make_model: Callable, write_gguf: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = GgufSource(write_gguf(make_model(head_dim=16), Q.Q4_1))
    monkeypatch.setattr(PIECE, 2 * 16 * 64 * 4 + 1)
    name = "model.layers.0.self_attn.{}_proj.weight"
    assert [p.shape for p in source.pieces(name.format("q"))] == [(32, 64), (32, 64)]
    assert [p.shape for p in source.codes(name.format("q"))] == [(32, 64), (32, 64)]
    assert [p.shape for p in source.pieces(name.format("o"))] == [(32, 64), (32, 64)]


def test_a_coded_bias_of_heads_is_put_in_order(tmp_path: Path) -> None:
    """Its blocks lie across the rows."""
    tensor = by_hand(tmp_path / "x", "Q8_0", (4 * 48,), seed=5)
    exact = expected(tensor, tmp_path / "x")
    wanted = exact.reshape(4, 24, 2).swapaxes(1, 2).reshape(-1)
    for piece in (1, 600, 2**22):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PIECE, piece)
            assert np.array_equal(joined(read_pieces(tensor, 4)), wanted)
