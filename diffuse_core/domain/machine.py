"""Figures of the machine a node runs on, and of what its Host is bringing there."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from diffuse_core.domain.slices import Slice

MAX_GPUS = 8
MAX_CHIPS = 4
"""Of which temperatures are told."""


class GpuFigures(msgspec.Struct, frozen=True):
    """One GPU: bytes, percent 0..100 of the time that it computed, °C; None where not told."""

    name: Annotated[str, msgspec.Meta(max_length=64)]
    memory_total: int
    memory_used: int
    busy_percent: float | None = None
    celsius: float | None = None


class Temperature(msgspec.Struct, frozen=True):
    """The hottest place of one chip."""

    label: Annotated[str, msgspec.Meta(max_length=32)]
    celsius: float


class HostProgress(msgspec.Struct, frozen=True):
    """How far a Host is with what it has to read first: `fraction` 0..1 of `total` bytes.

    `done` and `total` are reckoned from what the slice weighs; both are 0 where that is not known
    yet. No `slice` while the model itself is being found.
    """

    phase: Literal["reading", "downloading", "loading"]
    fraction: float
    slice: Slice | None = None
    done: int = 0
    total: int = 0
