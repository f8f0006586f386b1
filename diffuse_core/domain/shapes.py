"""What a model weighs: the figures that placement and admission reckon with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from diffuse_core.domain.slices import MAX_LAYERS, Slice

if TYPE_CHECKING:
    from collections.abc import Sequence

Contract = Literal["fp32", "bf16", "int8", "int4"]
"""The compute contract of a stage: stages of different contracts never share a Route."""

Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**50)]
LayerCount = Annotated[int, msgspec.Meta(ge=1, le=MAX_LAYERS)]

KV_RESERVE_TOKENS = 4096
"""Positions of KV that a slice must have room for beside its weights (one long session)."""

MAX_KINDS = 8
"""Sizes of layers that one model's shape tells apart."""

MAX_TABLE_LAYERS = 256
"""Layers that a shape may list kinds for: a record must stay small."""

GROUP = 32
"""Numbers along a row that share a scale and a minimum in 4-bit matrices."""

HIDDEN_TYPE: dict[Contract, Literal["fp32", "bf16"]] = {
    "fp32": "fp32",
    "bf16": "bf16",
    "int8": "bf16",
    "int4": "bf16",
}
"""In which type a contract's hidden states and KV are: the integers are for weights only."""

ITEM_BYTES: dict[Contract, int] = {
    contract: 4 if kind == "fp32" else 2 for contract, kind in HIDDEN_TYPE.items()
}
"""Bytes of one number of hidden states, KV, norms and biases under a contract."""


def matrix_bits(contract: Contract, stored: int, columns: int) -> Literal[4, 8, 16, 32]:
    """In how many bits a layer's matrix is held that its file stores in `stored` bits.

    4 bits are taken over from a file that has them, also under int8, or made from full
    precision; what has codes of another size is held in 8: estimating codes anew from codes
    loses answers. Rows that are no whole groups are held in bf16.
    """
    if contract == "fp32":
        return 32
    if contract == "bf16" or columns % GROUP:
        return 16
    return 4 if stored == 4 or (contract == "int4" and stored >= 16) else 8


def end_bits(contract: Contract, columns: int) -> Literal[8, 16, 32]:
    """In how many bits the embedding and the head are held: never less than 8."""
    bits = matrix_bits(contract, 8, columns)
    return 8 if bits == 4 else bits


def matrix_bytes(bits: Literal[4, 8, 16, 32], rows: int, columns: int) -> int:
    """Bytes of a matrix held in `bits`.

    4-bit codes have a scale and an offset of 2 bytes each for every GROUP of a row; 8-bit codes
    are two of 4 bits, with twice as many.
    """
    numbers = rows * columns
    if bits in (4, 8):
        return (numbers // 2 + 4 * (numbers // GROUP)) * (bits // 4)
    return numbers * bits // 8


def table_bytes(bits: Literal[8, 16, 32], rows: int, columns: int) -> int:
    """Bytes of an embedding held in `bits`: 8 has a scale of 2 bytes for every GROUP."""
    numbers = rows * columns
    return numbers + 2 * (numbers // GROUP) if bits == 8 else numbers * bits // 8


class ModelShape(msgspec.Struct, frozen=True):
    """Sizes of one model under one compute contract, as the model's reader counted them.

    All figures are bytes of the *loaded* tensors, not of the file. `layer_bytes` is the largest
    layer's. Where layers differ, `kinds` are the sizes that there are, and `kind_of` has for each
    layer the number of its kind. `kv_bytes` is the KV cache of one layer for one position. The
    final norm counts with the head. With tied weights the first and the last slice each hold a
    copy of the embedding, and a slice that is both holds one.

    Raises:
        ValueError: `kinds`, `kind_of` and `layer_bytes` contradict each other.
    """

    layers: LayerCount
    hidden: Annotated[int, msgspec.Meta(ge=1, le=2**20)]
    vocab: Annotated[int, msgspec.Meta(ge=1, le=2**24)]
    context: Annotated[int, msgspec.Meta(ge=1, le=2**30)]
    layer_bytes: Bytes
    embedding_bytes: Bytes
    head_bytes: Bytes
    kv_bytes: Bytes
    tied: bool = False
    kinds: Annotated[tuple[Bytes, ...], msgspec.Meta(max_length=MAX_KINDS)] = ()
    kind_of: Annotated[bytes, msgspec.Meta(max_length=MAX_TABLE_LAYERS)] = b""

    def __post_init__(self) -> None:
        if not self.kinds and not self.kind_of:
            return
        if len(self.kind_of) != self.layers or max(self.kind_of) >= len(self.kinds):
            raise ValueError("there is not one kind of the kinds for every layer")
        if max(self.kinds) != self.layer_bytes:
            raise ValueError("the largest kind of layer is not as large as the largest layer")

    def body_bytes(self, part: Slice) -> int:
        """Bytes of the layers of `part`, without what its ends hold beside."""
        if not self.kind_of:
            return len(part) * self.layer_bytes
        return sum(self.kinds[kind] for kind in self.kind_of[part.start : part.end])

    def head_share(self, part: Slice) -> int:
        """Bytes that `part` holds for the head: only the norm where it is the embedding."""
        if part.end < self.layers:
            return 0
        shared = part.start == 0 and self.tied
        return max(0, self.head_bytes - self.embedding_bytes) if shared else self.head_bytes

    def weight_bytes(self, part: Slice) -> int:
        """Bytes of the tensors that a host of `part` loads."""
        embedding = self.embedding_bytes if part.start == 0 else 0
        return self.body_bytes(part) + embedding + self.head_share(part)

    def kv_reserve(self) -> int:
        """Bytes of KV that each held layer must have room for."""
        return self.kv_bytes * min(self.context, KV_RESERVE_TOKENS)

    def needed_bytes(self, part: Slice) -> int:
        """Bytes that a host must be allowed to hold `part` and run one session through it."""
        return self.weight_bytes(part) + len(part) * self.kv_reserve()


def kinds_of_layers(sizes: Sequence[int]) -> tuple[tuple[int, ...], bytes]:
    """`kinds` and `kind_of` for layers of these sizes; empty when all are equal or too many.

    More sizes than MAX_KINDS are rounded up to as many.
    """
    least, most = min(sizes), max(sizes)
    if least == most or len(sizes) > MAX_TABLE_LAYERS:
        return (), b""
    if len(set(sizes)) > MAX_KINDS:
        step = -(-(most - least) // MAX_KINDS)
        sizes = [min(most, least + -(-(size - least) // step) * step) for size in sizes]
    # Rounding leaves the least size as it is: where that makes one too many, it goes up as well.
    kinds = tuple(sorted(set(sizes)))[-MAX_KINDS:]
    return kinds, bytes(kinds.index(max(size, kinds[0])) for size in sizes)
