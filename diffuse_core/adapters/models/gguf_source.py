"""A GGUF file as a source of weights."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from diffuse_core.adapters.models.checked_source import CheckedSource
from diffuse_core.adapters.models.gguf_config import (
    PERMUTED,
    ROPE_FACTORS,
    config_from_gguf,
    parameter_name,
)
from diffuse_core.adapters.models.gguf_header import GgufHeader, GgufTensor, read_gguf_header
from diffuse_core.adapters.models.model_config import whole
from diffuse_core.adapters.models.parameter import stored_as_is
from diffuse_core.adapters.models.stored_tensor import (
    StoredTensor,
    network_id,
    read_range,
)
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from diffuse_core.domain.bundle import Bundle
    from diffuse_core.model_ports import GroupCodes, RawTensor

_MAX_ROPE_FACTORS = 8192


class GgufSource(CheckedSource):
    """Reads tensors as codes, or with their codes turned into fp32."""

    def __init__(self, path: Path, name: str | None = None) -> None:
        """Read and check the header; `name` is the id on the network, else the file's name.

        Raises:
            ModelUnusable: damaged, truncated, hostile or of an unproven architecture.
        """
        header = read_gguf_header(path)
        shapes = {tensor.name: tensor.shape for tensor in header.tensors.values()}
        factors = _rope_factors(header, path)
        config = config_from_gguf(header.metadata, shapes, factors, str(path))
        stored = (_stored(tensor, path) for tensor in header.tensors.values())
        parameters = {tensor.name: stored_as_is(tensor) for tensor in stored if tensor is not None}
        super().__init__(name or network_id(path), str(path), config, parameters)
        self._path = path
        self._permuted = header.metadata["general.architecture"] in PERMUTED
        self._check_heads()

    def _make_bundle(self, context: int) -> Bundle:
        from diffuse_core.adapters.models.gguf_tokenizer import gguf_bundle

        # Read again rather than kept: the vocabulary would take tens of MB for ever.
        return gguf_bundle(read_gguf_header(self._path).metadata, context)

    # numpy and gguf are not needed to look at a model, only to read its numbers.
    def _pieces(self, tensor: StoredTensor) -> Iterator[RawTensor]:
        from diffuse_core.adapters.models.gguf_codes import read_pieces

        return read_pieces(tensor, self._heads_of(tensor.name))

    def _codes(self, tensor: StoredTensor) -> Iterator[GroupCodes] | None:
        from diffuse_core.adapters.models.gguf_codes import read_codes

        return read_codes(tensor, self._heads_of(tensor.name))

    def _heads_of(self, name: str) -> int:
        """How many heads' rows to put back in order; 0 for tensors that are in order."""
        if not self._permuted:
            return 0
        if ".self_attn.q_proj." in name:
            return whole(self._config, "num_attention_heads")
        if ".self_attn.k_proj." in name:
            return whole(self._config, "num_key_value_heads")
        return 0

    def _check_heads(self) -> None:
        for tensor in self.stored(self.names):
            heads = self._heads_of(tensor.name)
            if heads and tensor.shape[0] % (2 * heads):
                raise ModelUnusable(
                    f"{self._path}: tensor {tensor.label} has {tensor.shape[0]} rows, which are "
                    f"not {heads} heads; the file is damaged: download it again"
                )


def _stored(tensor: GgufTensor, path: Path) -> StoredTensor | None:
    name = parameter_name(tensor.name)
    if name is None:
        return None
    return StoredTensor(
        name, tensor.name, tensor.kind, tensor.shape, str(path), tensor.offset, tensor.size
    )


def _rope_factors(header: GgufHeader, path: Path) -> tuple[float, ...] | None:
    tensor = header.tensors.get(ROPE_FACTORS)
    if tensor is None:
        return None
    if tensor.kind != "F32" or len(tensor.shape) != 1 or tensor.shape[0] > _MAX_ROPE_FACTORS:
        raise ModelUnusable(f"{path}: tensor {ROPE_FACTORS} is not a short row of F32 numbers")
    data = bytearray(tensor.size)
    place = StoredTensor(
        tensor.name, tensor.name, "F32", tensor.shape, str(path), tensor.offset, tensor.size
    )
    read_range(place, 0, memoryview(data))
    return struct.unpack(f"<{tensor.shape[0]}f", data)
