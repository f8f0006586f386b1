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

ITEM_BYTES: dict[Contract, int] = {"fp32": 4, "bf16": 2, "int8": 1, "int4": 1}


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
