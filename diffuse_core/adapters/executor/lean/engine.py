"""The lean engine: passes of many Sessions through the layers of a Slice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from diffuse_core.adapters.executor.lean.attention import Seat, Seating
from diffuse_core.adapters.executor.lean.kv import LeanCache
from diffuse_core.adapters.executor.lean.logits import exact_logits
from diffuse_core.adapters.executor.lean.matrices import CodedTable

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from diffuse_core.adapters.executor.engine import Rows
    from diffuse_core.adapters.executor.lean.family import Family
    from diffuse_core.adapters.executor.lean.layer import Layer
    from diffuse_core.adapters.executor.lean.matrices import Matrix
    from diffuse_core.adapters.executor.lean.norm import Norm
    from diffuse_core.domain.slices import Slice


@dataclass(frozen=True)
class Rotary:
    """Angles per position (head_dim / 2, fp32), and what the turned numbers grow by."""

    frequencies: torch.Tensor
    scale: float

    def turns(self, positions: torch.Tensor) -> torch.Tensor:
        """Factors (n, 1, head_dim / 2), complex, for positions (n)."""
        angles = torch.outer(positions.to(torch.float32), self.frequencies)
        return torch.polar(torch.full_like(angles, self.scale), angles).unsqueeze(1)


@dataclass(frozen=True)
class Ends:
    """What the first and the last layer's holders have besides layers."""

    table: torch.Tensor | CodedTable | None = None
    norm: Norm | None = None
    head: Matrix | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all of it."""
        return sum(one.nbytes for one in (self.table, self.norm, self.head) if one is not None)


class LeanEngine:
    """Implements the executor's Engine over `held`."""

    def __init__(
        self,
        family: Family,
        held: Slice,
        layers: Sequence[Layer],
        ends: Ends,
        rotary: Rotary,
        dtype: torch.dtype,
        device: str,
        alone: int,
    ) -> None:
        """`alone` is with how few rows a row's product is already what it is among many."""
        self._family = family
        self._held = held
        self._layers = layers
        self._ends = ends
        self._rotary = rotary
        self._dtype = dtype
        self._device = device
        self._alone = alone

    @property
    def weight_bytes(self) -> int:
        """Bytes of the tensors held."""
        return sum(layer.weights.nbytes for layer in self._layers) + self._ends.nbytes

    def open(self, part: Slice, budget: int) -> LeanCache:
        """An empty cache with room for `budget` positions."""
        return LeanCache(part, budget, self._family, self._dtype, self._device)

    def together(self, batch: Sequence[Rows]) -> list[torch.Tensor | None]:
        """Run the rows of different caches in one pass; their parts may differ.

        When it raises, every cache is as it was.
        """
        outcomes: list[torch.Tensor | None] = [None] * len(batch)
        parts: dict[Slice, list[int]] = {}
        for index, rows in enumerate(batch):
            parts.setdefault(rows.cache.part, []).append(index)
        before = [rows.cache.length for rows in batch]
        done = False
        try:
            for part, members in parts.items():
                work = self._pass(part, [batch[index] for index in members])
                for index, outcome in zip(members, _exhausted(work), strict=True):
                    outcomes[index] = outcome
            done = True
        finally:
            # The passes of other parts may be through: all is run again, so all is taken back.
            if not done:
                for rows, length in zip(batch, before, strict=True):
                    rows.cache.length = length
        return outcomes

    def bit_by_bit(self, rows: Rows) -> Generator[None, None, torch.Tensor | None]:
        """Run the rows of one cache, pausing twice a layer."""
        outcomes = yield from self._pass(rows.cache.part, [rows])
        return outcomes[0]

    def _pass(
        self, part: Slice, batch: Sequence[Rows]
    ) -> Generator[None, None, list[torch.Tensor | None]]:
        seats = _seats(batch)
        used = seats[-1].last
        x = self._inputs(part, batch)
        if used < self._alone:
            # A lone row would go through another kernel, whose last bits differ.
            x = functional.pad(x, (0, 0, 0, self._alone - used))
        seating = Seating(seats, x.shape[0])
        turns = self._rotary.turns(_positions(seats, x.shape[0]).to(self._device))
        for slot, number in enumerate(range(part.start, part.end)):
            layer = self._layers[number - self._held.start]
            x = layer.mix(x, turns, seating, slot)
            yield
            x = layer.feed(x)
            yield
        outcomes = self._outcomes(part, batch, seats, x)
        for seat in seats:
            seat.cache.length = seat.end
        return outcomes

    def _inputs(self, part: Slice, batch: Sequence[Rows]) -> torch.Tensor:
        joined = torch.cat([rows.inputs for rows in batch]).to(self._device)
        if part.start > 0:
            return joined
        table = self._ends.table
        if isinstance(table, CodedTable):
            return table.rows_of(joined)
        if table is None:
            raise RuntimeError("a part from layer 0 on needs the embedding")
        return table.index_select(0, joined)

    def _outcomes(
        self, part: Slice, batch: Sequence[Rows], seats: Sequence[Seat], x: torch.Tensor
    ) -> list[torch.Tensor | None]:
        if part.end < self._family.layers:
            return [x[seat.first : seat.last] for seat in seats]
        wanted = [index for index, rows in enumerate(batch) if rows.want_logits]
        outcomes: list[torch.Tensor | None] = [None] * len(batch)
        if not wanted:
            return outcomes
        norm, head = self._ends.norm, self._ends.head
        if norm is None or head is None:
            raise RuntimeError("a part up to the last layer needs the final norm and the head")
        last = x[[seats[index].last - 1 for index in wanted]]
        if len(wanted) < self._alone:
            last = functional.pad(last, (0, 0, 0, self._alone - len(wanted)))
        logits = exact_logits(head, norm(last))
        for row, index in enumerate(wanted):
            outcomes[index] = logits[row]
        return outcomes


def _seats(batch: Sequence[Rows]) -> list[Seat]:
    seats = []
    first = 0
    for rows in batch:
        cache = rows.cache
        if not isinstance(cache, LeanCache):
            raise TypeError("the cache was made by another engine")
        last = first + rows.inputs.shape[0]
        seats.append(Seat(cache, first, last, cache.length))
        first = last
    return seats


def _positions(seats: Sequence[Seat], rows: int) -> torch.Tensor:
    """The position of each row; of nobody's, 0."""
    if rows <= len(seats) + 1:
        found = [seat.start for seat in seats]
        if all(seat.end - seat.start == 1 for seat in seats):
            return torch.tensor(found + [0] * (rows - len(found)))
    spans = [torch.arange(seat.start, seat.end) for seat in seats]
    return torch.cat([*spans, torch.zeros(rows - seats[-1].last, dtype=torch.int64)])


def _exhausted(
    work: Generator[None, None, list[torch.Tensor | None]],
) -> list[torch.Tensor | None]:
    while True:
        try:
            next(work)
        except StopIteration as stop:
            found: list[torch.Tensor | None] = stop.value
            return found
