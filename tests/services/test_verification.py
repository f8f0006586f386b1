"""What `verify` tries: every border of layers, on prompts that fit."""

from __future__ import annotations

import itertools

import pytest

from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable, UsageError
from diffuse_core.services.verification import (
    Outcome,
    Report,
    check_report,
    cuts,
    loaded_cuts,
    sample_prompts,
    windows,
)


def shape(layers: int, layer: int = 10, ends: int = 25) -> ModelShape:
    return ModelShape(layers, 8, 100, 64, layer, ends, ends, 1)


@pytest.mark.parametrize("layers", [2, 3, 4, 5, 12, 30, 80])
def test_every_cut_into_two_is_tried_and_some_into_more(layers: int) -> None:
    tried = cuts(layers)
    assert len(set(tried)) == len(tried)
    for parts in tried + loaded_cuts(layers):
        assert parts[0].start == 0
        assert parts[-1].end == layers
        assert all(a.end == b.start for a, b in itertools.pairwise(parts))
    assert {parts[0].end for parts in tried if len(parts) == 2} == set(range(1, layers))
    assert {len(parts) for parts in tried} == set(range(2, min(layers, 4) + 1))
    assert {len(parts) for parts in loaded_cuts(layers)} == set(range(2, min(layers, 3) + 1))


def test_a_model_of_one_layer_has_no_cut() -> None:
    assert cuts(1) == loaded_cuts(1) == []


@pytest.mark.parametrize(("layers", "capacity"), [(2, 70), (9, 45), (9, 60), (30, 50), (30, 999)])
def test_every_border_is_inside_of_a_window_that_fits(layers: int, capacity: int) -> None:
    sizes = shape(layers)
    found = windows(sizes, capacity)
    inside = {cut for part in found for cut in range(part.start + 1, part.end)}
    assert inside == set(range(1, layers))
    assert all(sizes.weight_bytes(part) <= capacity for part in found)
    assert all(len(part) > 1 for part in found)


def test_two_layers_must_fit() -> None:
    with pytest.raises(UsageError, match="layers 0:2 need"):
        windows(shape(9), 44)
    with pytest.raises(UsageError, match="another --dtype"):
        windows(shape(9, layer=30, ends=0), 59)


def test_prompts_without_words_fit_the_model() -> None:
    for vocab, room in ((7, 100), (50_000, 100), (50_000, 2)):
        found = sample_prompts(None, vocab, room)
        assert len({prompt.tokens for prompt in found}) > 1
        assert min(len(prompt.tokens) for prompt in found) == 1
        for prompt in found:
            assert all(0 <= token < vocab for token in prompt.tokens)
            assert len(prompt.tokens) <= room
    with pytest.raises(UsageError, match="lower --tokens"):
        sample_prompts(None, 7, 0)


def report(*same: bool) -> Report:
    outcomes = tuple(
        Outcome(f"way {number}", (Slice(0, 1),), False, good, good, 0.0, 1.0, 1.0)
        for number, good in enumerate(same)
    )
    return Report("a/model", "bf16", "cpu", 1, 2, True, (), outcomes)


def test_a_report_with_a_difference_is_refused_by_the_ways_that_differ() -> None:
    check_report(report(True, True))
    with pytest.raises(ModelUnusable, match=r"a/model in bf16 .* 2 of 3 ways .*\(way 0, way 2\)"):
        check_report(report(False, True, False))
    with pytest.raises(ModelUnusable, match=r"\(way 0, way 1, way 2, \.\.\.\)"):
        check_report(report(False, False, False, False))
