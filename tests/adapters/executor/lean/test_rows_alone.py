"""Several rows of one session in a pass: each, bit for bit, what it gives by itself."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch

from diffuse_core.adapters.executor.engine import Rows
from diffuse_core.adapters.executor.lean.engine import ROWS_ALONE
from diffuse_core.domain.slices import Slice
from tests.adapters.executor.lean.models import (
    LAYERS,
    PAIRS,
    all_equal,
    alone,
    lean_engine,
    some_rows,
    tables,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diffuse_core.adapters.executor.lean.engine import LeanEngine
    from diffuse_core.adapters.executor.lean.kv import LeanCache
    from diffuse_core.domain.shapes import Contract

WHOLE = Slice(0, LAYERS)
PARTS = (WHOLE, Slice(0, 3), Slice(2, 5), Slice(3, LAYERS))
PROMPT, DECODED = 11, 60


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
        single, grouped = (engine.open(part, 96) for _ in range(2))
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
    together = {i: engine.open(PARTS[i % 2], 96) for i in counts}
    apart = {i: engine.open(PARTS[i % 2], 96) for i in counts}
    for i in counts:
        for caches in (together, apart):
            alone(engine, caches[i], some_rows(WHOLE, 5 + 9 * i, contract, i))
    rows = {i: some_rows(WHOLE, count, contract, 90 + i) for i, count in counts.items()}
    # The fourth is a piece of a prompt: its rows are no single ones.
    batch = [Rows(together[i], rows[i], want_logits=i != 1, alone=i != 3) for i in counts]
    outcomes = engine.together(batch)
    for i, outcome in zip(counts, outcomes, strict=True):
        if i == 3:
            wanted = alone(engine, apart[i], rows[i])
            assert outcome is not None
            assert torch.equal(outcome, wanted)
        else:
            each = list(one_by_one(engine, apart[i], rows[i]))
            if PARTS[i % 2].end < LAYERS:
                assert outcome is not None
                assert torch.equal(outcome, torch.stack(each)), i
            else:
                assert outcome is not None
                assert torch.equal(outcome, each[-1]), i
        assert all_equal(tables(together[i]), tables(apart[i])), i


@pytest.mark.parametrize("contract", ["fp32", "bf16"])
@torch.inference_mode()
def test_a_piece_of_a_prompt_differs_so_that_these_tests_can_fail(contract: Contract) -> None:
    engine = lean_engine("llama", contract)
    rows = some_rows(WHOLE, 40, contract, 5)
    single, piece = (engine.open(WHOLE, 96) for _ in range(2))
    list(one_by_one(engine, single, rows))
    alone(engine, piece, rows)
    assert not all_equal(tables(single), tables(piece))
