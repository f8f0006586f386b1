"""A row's numbers must not depend on whose rows go with it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

import pytest
import torch

from diffuse_core.adapters.executor.lean.forms import Forms, Piece
from diffuse_core.adapters.executor.lean.invariance import proven_alone
from diffuse_core.adapters.executor.lean.matrices import Matrix, Stack
from diffuse_core.adapters.executor.loader import set_threads
from diffuse_core.domain.shapes import HIDDEN_TYPE
from tests.adapters.executor.lean.sources import TensorSource, random_codes

if TYPE_CHECKING:
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import WeightSource

CONTRACTS: tuple[Contract, ...] = ("fp32", "bf16", "int8", "int4")


class Fickle(Matrix):
    """Whose kernel adds in another order with fewer than `least` rows."""

    def __init__(self, least: int, rows: int = 24, expected: int = 1) -> None:
        super().__init__(rows, 16, 0)
        own = torch.Generator().manual_seed(1)
        self._weight = torch.randn((rows, 16), generator=own)
        self._least = least
        self.alone = expected
        self.calls = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        # Row by row, so that nothing but `least` matters.
        product = torch.stack([(row * self._weight).sum(1) for row in x])
        return product if len(x) >= self._least else product * (1 + 2.0**-20)


@pytest.mark.parametrize(
    ("least", "needed"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (9, 16), (16, 16)]
)
def test_a_matrix_whose_few_rows_differ_is_given_more(least: int, needed: int) -> None:
    assert proven_alone([Fickle(least)], torch.float32) == needed


def test_the_neediest_matrix_decides() -> None:
    assert proven_alone([Fickle(1), Fickle(4, 32), Fickle(2, 40)], torch.float32) == 4
    assert proven_alone([], torch.float32) == 1


def test_what_a_form_is_known_to_need_is_the_least() -> None:
    assert proven_alone([Fickle(1, expected=8)], torch.float32) == 8


def test_hopeless_kernels_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert proven_alone([Fickle(20, rows=40)], torch.float32) == 16
    assert "40 rows and 16 columns" in caplog.text


def test_each_shape_is_tried_once_and_each_stack_by_its_parts() -> None:
    again = Fickle(1)
    assert proven_alone([Fickle(1), again], torch.float32) == 1
    assert again.calls == 0
    # Two of the same height, of parts that are not: the second must be tried as well.
    first = Stack([Fickle(1, 24), Fickle(1, 40)])
    second = Stack([Fickle(1, 40), Fickle(4, 24)])
    assert (first.rows, second.rows) == (64, 64)
    assert proven_alone([first, second], torch.float32) == 4


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("shape", [(101, 64), (64, 192), (576, 576), (1536, 576)])
def test_rows_are_the_same_among_any_others(
    contract: Contract, shape: tuple[int, int], threads: int
) -> None:
    set_threads(threads)
    source = TensorSource({}, {"w": random_codes(*shape)}, rows=500)
    if contract == "int8":
        source.bits["w"] = 8
    matrix = Forms(cast("WeightSource", source), contract, "cpu").matrix([Piece("w")])
    dtype = torch.float32 if HIDDEN_TYPE[contract] == "fp32" else torch.bfloat16
    alone = proven_alone([matrix], dtype)
    assert alone <= 8
    own = torch.Generator().manual_seed(7)
    x = torch.randn((130, shape[1]), generator=own).to(dtype)
    beside = torch.randn((130, shape[0]), generator=own).to(dtype)
    ways = {
        "product": lambda a, _: matrix(a),
        "onto": matrix.onto,
        "gate": lambda a, _: matrix.gate(a),
        "times": matrix.times,
    }
    for name, way in ways.items():
        whole = way(x, beside)
        for count in [*range(1, 34), 64, 129]:
            first = 130 - max(count, alone)
            part = way(x[first:].contiguous(), beside[first:].contiguous())
            assert torch.equal(part[:count], whole[first : first + count]), (name, count)
