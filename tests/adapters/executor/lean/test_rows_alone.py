"""Several rows of one session in a pass: each, bit for bit, what it gives by itself."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch

from diffuse_core.adapters.executor.engine import Rows
from diffuse_core.adapters.executor.lean import loader
from diffuse_core.adapters.executor.lean.engine import ROWS_ALONE, LeanEngine
from diffuse_core.adapters.executor.lean.invariance import UNPROVEN
from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.domain.slices import Slice
from tests.adapters.executor.lean.models import (
    LAYERS,
    PAIRS,
    all_equal,
    alone,
    family_model,
    lean_engine,
    some_rows,
    tables,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diffuse_core.adapters.executor.lean.kv import LeanCache
    from diffuse_core.domain.shapes import Contract

WHOLE = Slice(0, LAYERS)
PARTS = (WHOLE, Slice(0, 3), Slice(2, 5), Slice(3, LAYERS))
PROMPT, DECODED, BUDGET = 11, 40, 11 + 40 + ROWS_ALONE


def one_by_one(engine: LeanEngine, cache: LeanCache, rows: torch.Tensor) -> Iterator[torch.Tensor]:
    for row in rows:
        found = alone(engine, cache, row.unsqueeze(0))
        assert found is not None
        assert bool(torch.isfinite(found).all())
        yield found.reshape(-1)


def groups(own: random.Random, count: int) -> Iterator[tuple[int, int]]:
    """Random places to cut `count` rows at, no group larger than is allowed."""
    at = 0
    while at < count:
        size = own.choice((1, 2, 3, 4, 5, 8, ROWS_ALONE))
        yield at, min(count, at + size)
        at += size


@pytest.mark.parametrize(("name", "contract"), PAIRS)
@torch.inference_mode()
def test_groups_give_each_row_what_it_gives_by_itself(name: str, contract: Contract) -> None:
    engine = lean_engine(name, contract)
    assert engine.rows_alone == ROWS_ALONE
    own = random.Random(f"{name} {contract}")
    for part in PARTS:
        prompt = some_rows(part, PROMPT, contract, 1)
        rows = some_rows(part, DECODED, contract, 2)
        guesses = some_rows(part, ROWS_ALONE, contract, 3)
        single, grouped = (engine.open(part, BUDGET) for _ in range(2))
        for cache in (single, grouped):
            alone(engine, cache, prompt)
        wanted = list(one_by_one(engine, single, rows))
        for start, end in groups(own, DECODED):
            wrong = own.randrange(ROWS_ALONE)
            # Guessed rows that turn out wrong go with the right ones, and are taken back.
            taken = torch.cat([rows[start:end], guesses[:wrong]])[:ROWS_ALONE]
            batch = Rows(grouped, taken, want_logits=True, alone=True, drafts=len(taken) - 1)
            (found,) = engine.together([batch])
            assert found is not None
            assert grouped.length == PROMPT + start + len(taken)
            found = found.reshape(len(taken), -1)
            for at in range(start, end):
                assert torch.equal(found[at - start], wanted[at]), (part, start, end, at)
            grouped.crop(PROMPT + end)
        assert all_equal(tables(single), tables(grouped))


@pytest.mark.parametrize(("name", "contract"), PAIRS)
@torch.inference_mode()
def test_groups_of_several_sessions_and_pieces_of_prompts_go_together(
    name: str, contract: Contract
) -> None:
    engine = lean_engine(name, contract)
    counts = {0: 3, 1: 1, 2: ROWS_ALONE, 3: 7, 4: 2}
    piece = 3
    together, apart = (
        {i: engine.open(PARTS[i % 2], BUDGET + 9 * i) for i in counts} for _ in range(2)
    )
    for i in counts:
        for caches in (together, apart):
            alone(engine, caches[i], some_rows(WHOLE, 5 + 9 * i, contract, i))
    rows = {i: some_rows(WHOLE, count, contract, 90 + i) for i, count in counts.items()}
    batch = [Rows(together[i], rows[i], want_logits=True, alone=i != piece) for i in counts]
    for i, outcome in zip(counts, engine.together(batch), strict=True):
        if i == piece:
            wanted = alone(engine, apart[i], rows[i])
        else:
            each = list(one_by_one(engine, apart[i], rows[i]))
            wanted = each[-1] if i % 2 == 0 else torch.stack(each)
        assert outcome is not None
        assert torch.equal(outcome, wanted), i
        assert all_equal(tables(together[i]), tables(apart[i])), i


@pytest.mark.parametrize("contract", ["fp32", "bf16"])
@torch.inference_mode()
def test_a_piece_of_a_prompt_differs_so_that_these_tests_can_fail(contract: Contract) -> None:
    engine = lean_engine("llama", contract)
    rows = some_rows(WHOLE, 40, contract, 5)
    single, piece = (engine.open(WHOLE, BUDGET) for _ in range(2))
    list(one_by_one(engine, single, rows))
    alone(engine, piece, rows)
    assert not all_equal(tables(single), tables(piece))


def test_where_products_are_not_proven_rows_come_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader, "proven_alone", lambda *_: UNPROVEN)
    executor = load_slice(family_model("llama")[0], WHOLE, "fp32", lambda _: None)
    assert isinstance(executor._engine, LeanEngine)
    assert executor.rows_alone == 1
