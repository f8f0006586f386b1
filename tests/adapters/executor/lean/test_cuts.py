"""Splitting a model must not change what it says: all contracts, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.adapters.executor.lean.models import LAYERS, PAIRS, lean_cut
from tests.adapters.executor.parity import play, same

if TYPE_CHECKING:
    from diffuse_core.domain.shapes import Contract


@pytest.mark.parametrize(("name", "contract"), PAIRS)
def test_every_cut_into_two_says_what_the_whole_says(name: str, contract: Contract) -> None:
    whole = play(lean_cut(name, contract, 0, LAYERS))
    assert all(bool(torch.isfinite(logits).all()) for _, logits in whole.logits)
    # A model that always says one thing would be equal to anything.
    assert len(set(whole.drawn)) > 2
    for at in range(1, LAYERS):
        assert same(whole, play(lean_cut(name, contract, 0, at, LAYERS))), at
