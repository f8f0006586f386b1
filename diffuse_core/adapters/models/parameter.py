"""A parameter of the whole module, and where its numbers are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from diffuse_core.adapters.models.stored_tensor import (
    PIECE_BYTES,
    PLAIN,
    StoredTensor,
    cut_rows,
    read_range,
)
from diffuse_core.model_ports import RawTensor

if TYPE_CHECKING:
    from collections.abc import Iterator


class Parameter(msgspec.Struct, frozen=True):
    """A parameter is one stored tensor, or is put together from several.

    Then row i of its first axis is the numbers of the tensors `rows[i]`, one after another.
    """

    name: str
    shape: tuple[int, ...]
    rows: tuple[tuple[StoredTensor, ...], ...]

    @property
    def whole(self) -> StoredTensor | None:
        """The one stored tensor that it is, if so."""
        first = self.rows[0][0]
        return first if first.shape == self.shape else None

    @property
    def numbers(self) -> int:
        """How many numbers it holds."""
        return sum(tensor.numbers for tensor in self.stored())

    @property
    def bits(self) -> int:
        """Bits of one stored number."""
        return self.rows[0][0].bits

    def stored(self) -> Iterator[StoredTensor]:
        """All that it is made of."""
        for row in self.rows:
            yield from row


def stored_as_is(tensor: StoredTensor) -> Parameter:
    """The parameter that a stored tensor is."""
    return Parameter(tensor.name, tensor.shape, ((tensor,),))


def assembled_pieces(parameter: Parameter) -> Iterator[RawTensor]:
    """A parameter put together from tensors of a PLAIN encoding, in blocks of whole rows.

    Raises:
        ModelUnusable: the file cannot be read or has changed.
    """
    row_bytes = sum(tensor.size for tensor in parameter.rows[0])
    kind = PLAIN[parameter.rows[0][0].kind]
    for first, count in cut_rows(len(parameter.rows), row_bytes, PIECE_BYTES):
        data = bytearray(count * row_bytes)
        target, at = memoryview(data), 0
        for row in parameter.rows[first : first + count]:
            for tensor in row:
                read_range(tensor, 0, target[at : at + tensor.size])
                at += tensor.size
        yield RawTensor(kind, (count, *parameter.shape[1:]), data)
