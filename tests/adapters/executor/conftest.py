"""Tiny random models, and a way to run a prompt through slices."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import torch

from diffuse_core.adapters.executor.loader import load_slice, set_threads
from diffuse_core.domain.slices import Slice
from tests.adapters.executor.parity import generated
from tests.adapters.executor.stages import Chain
from tests.adapters.executor.tiny import tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from diffuse_core.adapters.executor.stage_executor import StageExecutor
    from diffuse_core.model_ports import WeightSource


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    set_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_model() -> Callable:
    return tiny_model


@pytest.fixture
def load() -> Callable:
    """Load the slices whose borders are given; fp32 unless said otherwise."""

    def make(
        source: WeightSource, borders: Sequence[int], contract: str = "fp32"
    ) -> list[StageExecutor]:
        return [
            load_slice(source, Slice(a, b), contract, lambda _: None, lean=False)
            for a, b in itertools.pairwise(borders)
        ]

    return make


@pytest.fixture
def chain() -> type[Chain]:
    return Chain


@pytest.fixture
def reference() -> Callable:
    """What `transformers` itself says, greedily."""
    return generated
