"""The lean engine: passes of many Sessions through the layers of a Slice."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from diffuse_core.adapters.executor.lean.attention import Seat, Seating
from diffuse_core.adapters.executor.lean.invariance import UNPROVEN
from diffuse_core.adapters.executor.lean.kv import LeanCache
from diffuse_core.adapters.executor.lean.logits import exact_logits
from diffuse_core.adapters.executor.lean.matrices import CodedTable
from diffuse_core.adapters.executor.lean.unpacked import is_piece, least_rows

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from diffuse_core.adapters.executor.engine import Rows
    from diffuse_core.adapters.executor.lean.family import Family
    from diffuse_core.adapters.executor.lean.layer import Layer
    from diffuse_core.adapters.executor.lean.matrices import Matrix
    from diffuse_core.adapters.executor.lean.norm import Norm
    from diffuse_core.adapters.executor.lean.rotary import Rotary
    from diffuse_core.domain.slices import Slice

ROWS_ALONE = 32
"""Rows of a cache in one pass, each as if alone: no more than the invariance is tried with.

Milliseconds a row of 15 layers of SmolLM2, one thread, with 1, 4, 8, 16, 32 and 64 rows in a pass:
int4 7.3, 2.3, 2.1, 2.0, 2.0, 2.1; bf16 14.8, 4.0, 2.8, 1.9, 1.6, 1.4.
"""


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
        self._layers_for_pieces = [layer.for_pieces() for layer in layers]
        self._ends = ends
        self._rotary = rotary
        self._dtype = dtype
        self._device = device
        self._alone = alone
        self._piece = least_rows(dtype, device)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the tensors held."""
        return sum(layer.weights.nbytes for layer in self._layers) + self._ends.nbytes

    @property
    def rows_alone(self) -> int:
        """How many rows of a cache one pass may hold of which each is as if alone."""
        return ROWS_ALONE if self._alone < UNPROVEN else 1

    def open(self, part: Slice, budget: int) -> LeanCache:
        """An empty cache with room for `budget` positions."""
        return LeanCache(part, budget, self._family, self._dtype, self._device)

    def together(self, batch: Sequence[Rows]) -> list[torch.Tensor | None]:
        """Run the rows of different caches in one pass; their parts may differ.

        Those of another part, and large pieces of prompts, go through in passes of their own.
        When it raises, every cache is as it was.
        """
        outcomes: list[torch.Tensor | None] = [None] * len(batch)
        parts: dict[tuple[Slice, int], list[int]] = {}
        for index, rows in enumerate(batch):
            own = index if is_piece(rows, self._piece) else -1
            parts.setdefault((rows.cache.part, own), []).append(index)
        before = [rows.cache.length for rows in batch]
        done = False
        try:
            for (part, _), members in parts.items():
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
        seating = Seating(seats, x.shape[0], self._family, self._dtype, self._device)
        nobody = [(0, 1)] * (x.shape[0] - used)
        turns = self._rotary.turns([*((seat.start, seat.end) for seat in seats), *nobody])
        held = self._layers_for_pieces if is_piece(batch[0], self._piece) else self._layers
        first = part.start - self._held.start
        for slot, layer in enumerate(held[first : first + len(part)]):
            x = layer.mix(x, turns, seating, slot)
            yield
            x = layer.feed(x)
            yield
        outcomes = self._outcomes(part, batch, x)
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
        self, part: Slice, batch: Sequence[Rows], x: torch.Tensor
    ) -> list[torch.Tensor | None]:
        ends = list(itertools.accumulate(rows.inputs.shape[0] for rows in batch))
        if part.end < self._family.layers:
            return [x[a:b] for a, b in itertools.pairwise([0, *ends])]
        outcomes: list[torch.Tensor | None] = [None] * len(batch)
        wanted: list[int] = []
        for rows, end in zip(batch, ends, strict=True):
            if rows.want_logits:
                wanted.extend(range(end - 1 - rows.drafts, end))
        if not wanted:
            return outcomes
        norm, head = self._ends.norm, self._ends.head
        if norm is None or head is None:
            raise RuntimeError("a part up to the last layer needs the final norm and the head")
        last = x[wanted]
        if len(wanted) < self._alone:
            last = functional.pad(last, (0, 0, 0, self._alone - len(wanted)))
        logits = exact_logits(head, norm(last))
        at = 0
        for index, rows in enumerate(batch):
            if rows.want_logits:
                own = logits[at : at + 1 + rows.drafts]
                outcomes[index] = own if rows.drafts else own[0]
                at += 1 + rows.drafts
        return outcomes


def _seats(batch: Sequence[Rows]) -> list[Seat]:
    """A seat for the rows of each cache; for each row that is to be as if it came alone."""
    seats: list[Seat] = []
    first = 0
    for rows in batch:
        cache = rows.cache
        if not isinstance(cache, LeanCache):
            raise TypeError("the cache was made by another engine")
        count = rows.inputs.shape[0]
        size = 1 if rows.alone else count
        seats.extend(
            Seat(cache, first + at, first + at + size, cache.length + at)
            for at in range(0, count, size)
        )
        first += count
    return seats


def _exhausted(
    work: Generator[None, None, list[torch.Tensor | None]],
) -> list[torch.Tensor | None]:
    while True:
        try:
            next(work)
        except StopIteration as stop:
            found: list[torch.Tensor | None] = stop.value
            return found
