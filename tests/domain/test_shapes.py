"""What a slice of a model weighs."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.shapes import (
    KV_RESERVE_TOKENS,
    MAX_KINDS,
    MAX_TABLE_LAYERS,
    Contract,
    ModelShape,
    end_bits,
    kinds_of_layers,
    matrix_bits,
    matrix_bytes,
    table_bytes,
)
from diffuse_core.domain.slices import Slice

PLAIN = ModelShape(
    layers=4,
    hidden=8,
    vocab=100,
    context=10_000,
    layer_bytes=50,
    embedding_bytes=800,
    head_bytes=816,
    kv_bytes=3,
)
MIXED = msgspec.structs.replace(PLAIN, kinds=(20, 50), kind_of=bytes([0, 1, 1, 0]))


@pytest.mark.parametrize(
    ("contract", "stored", "columns", "bits"),
    [
        ("fp32", 4, 64, 32),
        ("bf16", 32, 64, 16),
        ("int8", 4, 64, 4),
        ("int8", 32, 64, 8),
        ("int4", 4, 64, 4),
        ("int4", 16, 64, 4),
        ("int4", 32, 64, 4),
        ("int4", 8, 64, 8),
        ("int4", 5, 64, 8),
        ("int4", 4, 65, 16),
        ("int8", 8, 65, 16),
    ],
)
def test_in_how_many_bits_a_matrix_is_held(
    contract: Contract, stored: int, columns: int, bits: int
) -> None:
    assert matrix_bits(contract, stored, columns) == bits


def test_bytes_of_a_matrix() -> None:
    assert [matrix_bytes(bits, 3, 64) for bits in (32, 16, 8, 4)] == [768, 384, 240, 120]


def test_ends_are_held_in_8_bits_and_never_in_less() -> None:
    contracts: tuple[Contract, ...] = ("fp32", "bf16", "int8", "int4")
    assert [end_bits(contract, 64) for contract in contracts] == [32, 16, 8, 8]
    assert end_bits("int4", 65) == 16
    assert [table_bytes(bits, 3, 64) for bits in (32, 16, 8)] == [768, 384, 204]


def test_ends_weigh_what_they_hold() -> None:
    assert PLAIN.weight_bytes(Slice(1, 3)) == 100
    assert PLAIN.weight_bytes(Slice(0, 3)) == 150 + 800
    assert PLAIN.weight_bytes(Slice(2, 4)) == 100 + 816
    assert PLAIN.weight_bytes(Slice(0, 4)) == 200 + 800 + 816
    tied = msgspec.structs.replace(PLAIN, tied=True)
    assert tied.weight_bytes(Slice(2, 4)) == 100 + 816
    # The embedding once, and the norm, which is not shared.
    assert tied.weight_bytes(Slice(0, 4)) == 200 + 800 + 16
    assert tied.head_share(Slice(0, 3)) == 0
    # An embedding with more to it than the head has, learned positions for one.
    learned = msgspec.structs.replace(tied, embedding_bytes=900)
    assert learned.head_share(Slice(0, 4)) == 0


def test_layers_weigh_what_their_kind_does() -> None:
    assert [MIXED.body_bytes(Slice(a, a + 1)) for a in range(4)] == [20, 50, 50, 20]
    assert MIXED.weight_bytes(Slice(0, 4)) == 140 + 800 + 816
    assert PLAIN.body_bytes(Slice(0, 3)) == 150


def test_needed_is_weights_and_a_long_session() -> None:
    assert PLAIN.kv_reserve() == 3 * KV_RESERVE_TOKENS
    assert msgspec.structs.replace(PLAIN, context=10).kv_reserve() == 30
    assert PLAIN.needed_bytes(Slice(1, 3)) == 100 + 2 * 3 * KV_RESERVE_TOKENS


@pytest.mark.parametrize(
    "changes",
    [
        {"kind_of": bytes([0, 1, 1])},
        {"kind_of": bytes([0, 1, 1, 2])},
        {"kind_of": b""},
        {"kinds": ()},
        {"kinds": (20, 49)},
        {"kinds": (20, 51)},
    ],
)
def test_kinds_that_contradict_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="kind"):
        msgspec.structs.replace(MIXED, **changes)
    wire = {**msgspec.to_builtins(MIXED, builtin_types=(bytes,)), **changes}
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(wire), type=ModelShape)


def test_a_shape_goes_over_the_wire() -> None:
    data = msgspec.msgpack.encode(MIXED)
    assert msgspec.msgpack.decode(data, type=ModelShape) == MIXED


def test_equal_layers_need_no_table() -> None:
    assert kinds_of_layers([7, 7, 7]) == ((), b"")
    assert kinds_of_layers([1, 2] * MAX_TABLE_LAYERS) == ((), b"")
    assert kinds_of_layers([5, 9, 5]) == ((5, 9), bytes([0, 1, 0]))


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=MAX_TABLE_LAYERS))
def test_a_table_is_never_below_and_nearly_exact(sizes: list[int]) -> None:
    kinds, kind_of = kinds_of_layers(sizes)
    if not kinds:
        assert len(set(sizes)) == 1
        return
    assert len(kinds) <= MAX_KINDS
    told = [kinds[kind] for kind in kind_of]
    assert max(told) == max(sizes)
    step = (max(sizes) - min(sizes)) / MAX_KINDS
    exact = len(set(sizes)) <= MAX_KINDS
    for size, rounded in zip(sizes, told, strict=True):
        assert size <= rounded <= (size if exact else size + 2 * step + 1)
    ModelShape(
        layers=len(sizes),
        hidden=1,
        vocab=1,
        context=1,
        layer_bytes=max(sizes),
        embedding_bytes=0,
        head_bytes=0,
        kv_bytes=0,
        kinds=kinds,
        kind_of=kind_of,
    )
