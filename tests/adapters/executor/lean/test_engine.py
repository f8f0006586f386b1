"""Passes of many sessions: each gets, bit for bit, what it gets alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch

from diffuse_core.adapters.executor.engine import Rows
from diffuse_core.adapters.executor.lean import forms
from diffuse_core.adapters.executor.lean.matrices import PlainMatrix
from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import Refused
from tests.adapters.executor.lean.models import (
    CONTRACTS,
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
    from diffuse_core.adapters.executor.lean.engine import LeanEngine
    from diffuse_core.adapters.executor.lean.kv import LeanCache
    from diffuse_core.domain.shapes import Contract

BUDGET = 96
WHOLE = Slice(0, LAYERS)


class Guest(NamedTuple):
    """A session: its part, the rows it has, and those of its next passes."""

    part: Slice
    history: tuple[int, ...]
    counts: tuple[int, ...]


GUESTS = (
    Guest(WHOLE, (17,), (1, 1, 3)),
    Guest(WHOLE, (), (1, 1, 1)),
    Guest(WHOLE, (30, 11), (1, 5, 1)),
    Guest(Slice(0, 3), (4,), (1, 2, 1)),
    Guest(Slice(2, 5), (9,), (6, 1, 1)),
    Guest(Slice(3, LAYERS), (1,), (1, 1, 4)),
    Guest(Slice(3, LAYERS), (), (12, 1, 1)),
)


def open_with_history(engine: LeanEngine, contract: Contract, index: int) -> LeanCache:
    guest = GUESTS[index]
    cache = engine.open(guest.part, BUDGET)
    for at, count in enumerate(guest.history):
        alone(engine, cache, some_rows(guest.part, count, contract, 100 * index + at))
    return cache


def next_rows(contract: Contract, index: int, turn: int) -> torch.Tensor:
    guest = GUESTS[index]
    return some_rows(guest.part, guest.counts[turn], contract, 5000 + 100 * index + turn)


@pytest.mark.parametrize(("name", "contract"), PAIRS)
@torch.inference_mode()
def test_sessions_together_get_what_each_gets_alone(name: str, contract: Contract) -> None:
    engine = lean_engine(name, contract)
    lone = [open_with_history(engine, contract, i) for i in range(len(GUESTS))]
    shared = [open_with_history(engine, contract, i) for i in range(len(GUESTS))]
    for turn in range(3):
        rows = [next_rows(contract, i, turn) for i in range(len(GUESTS))]
        # Who wants logits changes who stands where in the head's rows.
        wanted = [(i + turn) % 3 != 0 for i in range(len(GUESTS))]
        apart = [
            alone(engine, cache, own, want_logits=want)
            for cache, own, want in zip(lone, rows, wanted, strict=True)
        ]
        batch = [
            Rows(cache, own, want_logits=want)
            for cache, own, want in zip(shared, rows, wanted, strict=True)
        ]
        for i, (mine, one) in enumerate(zip(engine.together(batch), apart, strict=True)):
            assert (mine is None) == (one is None), (turn, i)
            assert mine is None or torch.equal(mine, one), (turn, i)
            assert mine is None or bool(torch.isfinite(mine).all())
            assert all_equal(tables(shared[i]), tables(lone[i])), (turn, i)
            assert shared[i].length == lone[i].length
    assert any(one is not None for one in apart)


@pytest.mark.parametrize("contract", CONTRACTS)
@torch.inference_mode()
def test_order_and_company_do_not_matter(contract: Contract) -> None:
    engine = lean_engine("llama", contract)
    found = []
    for order in ((0, 1, 2), (2, 1, 0), (1,)):
        caches = {i: open_with_history(engine, contract, i) for i in order}
        batch = [Rows(caches[i], next_rows(contract, i, 0), want_logits=True) for i in order]
        found.append(dict(zip(order, engine.together(batch), strict=True))[1])
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


class Fickle(PlainMatrix):
    """Adds in another order when it is given fewer than four rows, as some kernels do."""

    alone = 1

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        product = super().__call__(x)
        return product if len(x) >= 4 else product * 1.001


@torch.inference_mode()
def test_few_rows_are_filled_up_where_kernels_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "can_pack", lambda *_: False)
    monkeypatch.setattr(forms, "PlainMatrix", Fickle)
    source = family_model("llama")[0]
    engine = load_slice(source, WHOLE, "fp32", lambda _: None)._engine
    for counts in ((3, 2, 5), (1, 1, 1), (1, 1, 4)):
        shared, lone = ([engine.open(WHOLE, BUDGET) for _ in counts] for _ in range(2))
        rows = [some_rows(WHOLE, n, "fp32", 10 * n + i) for i, n in enumerate(counts)]
        batch = [Rows(c, own, want_logits=True) for c, own in zip(shared, rows, strict=True)]
        for i, found in enumerate(engine.together(batch)):
            assert found is not None
            assert torch.equal(found, alone(engine, lone[i], rows[i]))
            assert all_equal(tables(shared[i]), tables(lone[i]))


CHUNKINGS = ((24,), (1,) * 24, (5, 1, 9, 9), (23, 1), (2, 22), (12, 12))


@pytest.mark.parametrize(("name", "contract"), PAIRS)
def test_chunks_of_a_prompt_give_the_same_rows_up_to_attention(
    name: str, contract: Contract
) -> None:
    """What is promised of chunks, and what is not.

    The keys and values of the first layer come of norms and matrices alone, whose rows do not
    depend on each other: bit-equal, but for pieces so large that their matrices are multiplied in
    another way. From the first attention on, a row that is computed with others is summed in
    another order than one that comes alone: near, not equal.
    """
    engine = lean_engine(name, contract)
    prompt = some_rows(WHOLE, 24, contract, 1)
    first: list[torch.Tensor] = []
    logits: list[torch.Tensor] = []
    for chunks in CHUNKINGS:
        cache = engine.open(WHOLE, BUDGET)
        for chunk in prompt.split(list(chunks)):
            last = alone(engine, cache, chunk)
        assert last is not None
        if max(chunks) < engine._piece:
            first.append(tables(cache)[0])
        logits.append(last)
    assert len(first) >= 3
    for own in first:
        assert torch.equal(own, first[0])
    for found in logits:
        near = 1e-4 if contract == "fp32" else 0.25
        assert float((found - logits[0]).abs().max()) <= near * float(logits[0].abs().max())


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_cropped_session_goes_on_as_if_it_had_stopped_there(contract: Contract) -> None:
    engine = lean_engine("qwen2", contract)
    straight, cropped = engine.open(WHOLE, BUDGET), engine.open(WHOLE, BUDGET)
    prompt = some_rows(WHOLE, 20, contract, 2)
    for cache in (straight, cropped):
        alone(engine, cache, prompt)
    alone(engine, cropped, some_rows(WHOLE, 30, contract, 3))
    cropped.crop(20)
    for seed, count in ((4, 1), (5, 3), (6, 1)):
        rows = some_rows(WHOLE, count, contract, seed)
        one, other = alone(engine, straight, rows), alone(engine, cropped, rows)
        assert one is not None
        assert torch.equal(one, other)
    assert all_equal(tables(straight), tables(cropped))
    cropped.crop(0)
    alone(engine, cropped, prompt)
    straight.crop(20)
    assert all_equal(tables(straight), tables(cropped))


def test_nothing_is_cropped_that_is_not_there() -> None:
    cache = lean_engine("llama", "fp32").open(WHOLE, BUDGET)
    for length in (-1, 1):
        with pytest.raises(Refused, match=f"has 0 rows and cannot be cropped to {length}"):
            cache.crop(length)


@pytest.mark.parametrize("contract", CONTRACTS)
@torch.inference_mode()
def test_bit_by_bit_gives_the_same_with_others_in_between(contract: Contract) -> None:
    engine = lean_engine("mistral", contract)
    one, other, between, quiet = (engine.open(WHOLE, BUDGET) for _ in range(4))
    for part in (Slice(0, 4), WHOLE):
        one, other = engine.open(part, BUDGET), engine.open(part, BUDGET)
        rows = some_rows(part, 33, contract, 7)
        wanted = alone(engine, one, rows)
        assert wanted is not None
        pauses = 0
        work = engine.bit_by_bit(Rows(other, rows, want_logits=True))
        while True:
            try:
                next(work)
            except StopIteration as stop:
                found = stop.value
                break
            pauses += 1
            assert other.length == 0
            guest = some_rows(WHOLE, 1, contract, pauses)
            disturbed = alone(engine, between, guest)
            assert disturbed is not None
            assert torch.equal(disturbed, alone(engine, quiet, guest))
        assert pauses == 2 * len(part)
        assert torch.equal(found, wanted)
        assert all_equal(tables(one), tables(other))


@torch.inference_mode()
def test_a_pass_given_up_half_way_harms_nobody() -> None:
    engine = lean_engine("smollm3", "int4")
    given_up, other, quiet = (engine.open(WHOLE, BUDGET) for _ in range(3))
    work = engine.bit_by_bit(Rows(given_up, some_rows(WHOLE, 20, "int4", 1), want_logits=True))
    for _ in range(3):
        next(work)
    work.close()
    assert given_up.length == 0
    for seed, count in ((2, 9), (3, 1)):
        rows = some_rows(WHOLE, count, "int4", seed)
        one, same = alone(engine, other, rows), alone(engine, quiet, rows)
        assert one is not None
        assert torch.equal(one, same)
    # Its rows were never counted: the next pass writes over them.
    again = alone(engine, given_up, some_rows(WHOLE, 9, "int4", 2))
    assert again is not None
    assert all_equal(tables(given_up), [table[:, :9] for table in tables(quiet)])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("contract", CONTRACTS)
@torch.inference_mode()
def test_numbers_that_fail_in_one_session_stay_there(contract: Contract, bad: float) -> None:
    engine = lean_engine("llama", contract)
    part = Slice(2, LAYERS)
    caches = [engine.open(part, BUDGET) for _ in range(3)]
    lone = [engine.open(part, BUDGET) for _ in range(3)]
    for counts in ((5, 4, 1), (1, 1, 1)):
        rows = [some_rows(part, n, contract, 10 * n + i) for i, n in enumerate(counts)]
        rows[1][0, 3] = bad
        apart = [alone(engine, cache, own) for cache, own in zip(lone, rows, strict=True)]
        batch = [Rows(c, own, want_logits=True) for c, own in zip(caches, rows, strict=True)]
        found = engine.together(batch)
        for i in (0, 2):
            assert bool(torch.isfinite(found[i]).all())
            assert torch.equal(found[i], apart[i])
            assert all_equal(tables(caches[i]), tables(lone[i]))
        assert not bool(torch.isfinite(found[1]).all())


@torch.inference_mode()
def test_layers_without_rotary_positions_do_not_turn_keys() -> None:
    engine = lean_engine("smollm3", "fp32")
    cache = engine.open(WHOLE, BUDGET)
    alone(engine, cache, torch.tensor([5, 9, 5, 5]))
    # Layer 0 of MODELS has none: equal tokens have equal keys, wherever they stand.
    keys = cache.tables[0][:2]
    assert torch.equal(keys[:, 0], keys[:, 2])
    assert torch.equal(keys[:, 0], keys[:, 3])
    turned = lean_engine("llama", "fp32")
    cache = turned.open(WHOLE, BUDGET)
    alone(turned, cache, torch.tensor([5, 9, 5, 5]))
    keys, values = cache.tables[0][:2], cache.tables[0][2:]
    assert not torch.allclose(keys[:, 0], keys[:, 2])
    assert torch.equal(values[:, 0], values[:, 2])


def test_caches_of_another_engine_are_a_defect() -> None:
    class Stranger:
        part, budget, length = WHOLE, 8, 0

    with pytest.raises(TypeError, match="another engine"):
        alone(lean_engine("llama", "fp32"), Stranger(), torch.tensor([1]))
