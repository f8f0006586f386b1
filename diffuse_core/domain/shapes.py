"""What a model weighs: the figures that placement and admission reckon with."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from diffuse_core.domain.slices import MAX_LAYERS, Slice

Contract = Literal["fp32", "bf16", "int8", "int4"]
"""The compute contract of a stage: stages of different contracts never share a Route."""

Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**50)]
LayerCount = Annotated[int, msgspec.Meta(ge=1, le=MAX_LAYERS)]

KV_RESERVE_TOKENS = 4096
"""Positions of KV that a slice must have room for beside its weights (one long session)."""

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

    4 bits are taken over from a file that has them, or made from full precision; what has codes
    of another size is held in 8, for estimating codes anew from codes loses answers.
    """
    if contract == "fp32":
        return 32
    if contract == "bf16":
        return 16
    fits = columns % GROUP == 0 and stored in (4, 16, 32)
    return 4 if contract == "int4" and fits else 8


def matrix_bytes(bits: Literal[4, 8, 16, 32], rows: int, columns: int) -> int:
    """Bytes of a matrix held in `bits`: 8 has a scale a row, 4 a scale and a minimum a GROUP."""
    numbers = rows * columns
    if bits == 8:
        return numbers + 2 * rows
    if bits == 4:
        return numbers // 2 + 4 * (numbers // GROUP)
    return numbers * bits // 8


class ModelShape(msgspec.Struct, frozen=True):
    """Sizes of one model under one compute contract, as the model's reader counted them.

    All figures are bytes of the *loaded* tensors, not of the file. `kv_bytes` is the KV cache of
    one layer for one position. Layers of one model are near-identical, so `layer_bytes` is that of
    the largest. With tied weights the first and the last slice each hold a copy of the embedding,
    and a slice that is both holds one.
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

    def weight_bytes(self, part: Slice) -> int:
        """Bytes of the tensors that a host of `part` loads."""
        total = len(part) * self.layer_bytes
        first, last = part.start == 0, part.end == self.layers
        if first:
            total += self.embedding_bytes
        if last and not (first and self.tied):
            total += self.head_bytes
        return total

    def kv_reserve(self) -> int:
        """Bytes of KV that each held layer must have room for."""
        return self.kv_bytes * min(self.context, KV_RESERVE_TOKENS)

    def needed_bytes(self, part: Slice) -> int:
        """Bytes that a host must be allowed to hold `part` and run one session through it."""
        return self.weight_bytes(part) + len(part) * self.kv_reserve()
