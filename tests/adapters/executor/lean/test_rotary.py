"""Factors that turn queries and keys depend on the position and on nothing else."""

from __future__ import annotations

import torch

from diffuse_core.adapters.executor.lean.rotary import BLOCK, MOST_BLOCKS, Rotary

FREQUENCIES = 10_000 ** (-torch.arange(0, 12, 2) / 12)


def test_factors_are_those_of_the_formula() -> None:
    rotary = Rotary(FREQUENCIES, 1.5)
    found = rotary.turns([(0, 3), (700, 701)])
    assert found.shape == (4, 1, 6)
    angles = torch.tensor([0.0, 1.0, 2.0, 700.0]).unsqueeze(1) * FREQUENCIES
    wanted = torch.complex(1.5 * angles.cos(), 1.5 * angles.sin()).unsqueeze(1)
    assert torch.allclose(found, wanted, atol=1e-4)


def test_a_position_has_the_same_factors_whatever_goes_with_it() -> None:
    one, other = Rotary(FREQUENCIES, 1.0), Rotary(FREQUENCIES, 1.0)
    spans = [(5, 6), (BLOCK - 3, 2 * BLOCK + 4), (0, 1)]
    whole = one.turns(spans)
    positions = [at for start, end in spans for at in range(start, end)]
    assert len(whole) == len(positions)
    for at, row in zip(reversed(positions), reversed(whole), strict=True):
        assert torch.equal(other.turns([(at, at + 1)])[0], row)


def test_far_positions_do_not_pile_up() -> None:
    rotary = Rotary(FREQUENCIES, 1.0)
    first = rotary.turns([(1, 2)]).clone()
    for number in range(3 * MOST_BLOCKS):
        rotary.turns([(number * BLOCK, number * BLOCK + 1)])
    assert len(rotary._blocks) == MOST_BLOCKS
    assert torch.equal(rotary.turns([(1, 2)]), first)
