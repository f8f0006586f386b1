"""Attention of pieces of prompts, against float64."""

from __future__ import annotations

import pytest
import torch

from diffuse_core.adapters.executor.lean import bf16, piece_attention
from diffuse_core.adapters.executor.lean.attention import Seat, Seating
from diffuse_core.adapters.executor.lean.family import Family
from diffuse_core.adapters.executor.lean.kv import LeanCache
from diffuse_core.adapters.executor.lean.piece_attention import BLOCK_ROWS, LEAST_ROWS, suits
from diffuse_core.domain.slices import Slice

BF16 = torch.bfloat16
WINDOWS = (None, 8, 100, None)
FAMILY = Family(
    kind="llama",
    layers=len(WINDOWS),
    hidden=64,
    vocab=100,
    heads=6,
    kv_heads=2,
    head_dim=32,
    eps=1e-5,
    windows=WINDOWS,
    rotary=(True,) * len(WINDOWS),
)
PART = Slice(0, len(WINDOWS))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CPU that multiplies bf16 itself, whatever this one does."""
    monkeypatch.setattr(bf16, "is_slow", lambda _type, _device: False)


def exact(
    query: torch.Tensor, table: torch.Tensor, start: int, window: int | None
) -> torch.Tensor:
    """Of queries (n, heads, head_dim) at positions from `start` on, in float64."""
    end = start + len(query)
    keys, values = table[:, :end].double().repeat_interleave(3, 0).chunk(2)
    scores = query.double().transpose(0, 1) @ keys.transpose(1, 2) * FAMILY.head_dim**-0.5
    rows, columns = torch.arange(start, end).unsqueeze(1), torch.arange(end)
    hidden = (columns > rows) | (columns <= rows - (window or end))
    shares = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    mixed = shares @ values.masked_fill(values.isnan(), 0)
    return mixed.transpose(0, 1).flatten(1)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("start", [0, 5, 150])
@pytest.mark.parametrize("rows", [LEAST_ROWS, BLOCK_ROWS, 2 * BLOCK_ROWS + 9])
@torch.inference_mode()
def test_rows_see_what_came_before_them(
    rows: int, start: int, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fused:
        monkeypatch.setattr(piece_attention, "SCORE_BYTES", 0)
    assert suits(rows, start + rows, FAMILY, BF16, "cpu") is not fused
    own = torch.Generator().manual_seed(rows + start)
    cache = LeanCache(PART, start + rows + 3, FAMILY, BF16, "cpu")
    for table in cache.tables:
        # What was never written, and what comes later, must not be looked at.
        table.fill_(float("nan"))
        table[:, :start] = torch.randn((4, start, 32), generator=own).to(BF16)
    # A row that is nobody's comes last.
    seats = [Seat(cache, 0, rows, start)]
    seating = Seating(seats, rows + 1, FAMILY, BF16, "cpu")
    for slot, window in enumerate(WINDOWS):
        given = torch.randn(seating.heads.shape, generator=own)
        seating.heads.copy_(given)
        found = seating.attend(slot)
        written = cache.tables[slot][:, start : start + rows].transpose(0, 1)
        assert torch.equal(written, given[:rows, FAMILY.heads :].to(BF16))
        wanted = exact(given[:rows, : FAMILY.heads], cache.tables[slot], start, window)
        assert found.dtype == BF16
        assert float((found[:rows].double() - wanted).abs().max()) < 0.03
        assert not found[rows].any()


@torch.inference_mode()
def test_what_a_window_has_left_behind_is_not_looked_at() -> None:
    rows, start, slot = BLOCK_ROWS + 1, 40, WINDOWS.index(8)
    own = torch.Generator().manual_seed(1)
    cache = LeanCache(PART, start + rows, FAMILY, BF16, "cpu")
    cache.tables[slot][:] = float("nan")
    cache.tables[slot][:, start + 1 - 8 : start] = 0.5
    seating = Seating([Seat(cache, 0, rows, start)], rows, FAMILY, BF16, "cpu")
    seating.heads.copy_(torch.randn(seating.heads.shape, generator=own))
    assert bool(seating.attend(slot).isfinite().all())


def test_small_pieces_and_other_types_are_left_to_the_fused_kernel() -> None:
    assert suits(LEAST_ROWS, 100, FAMILY, BF16, "cpu")
    assert not suits(LEAST_ROWS - 1, 100, FAMILY, BF16, "cpu")
    assert not suits(LEAST_ROWS, 100, FAMILY, torch.float32, "cpu")
    assert not suits(256, 2**21, FAMILY, BF16, "cpu")


def test_so_are_all_where_bf16_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf16, "is_slow", lambda _type, device: device == "cpu")
    assert not suits(LEAST_ROWS, 100, FAMILY, BF16, "cpu")
    assert suits(LEAST_ROWS, 100, FAMILY, BF16, "cuda")
