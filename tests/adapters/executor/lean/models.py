"""Tiny models of the family, whose rows are whole groups of 32, and their lean engines."""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch

from diffuse_core.adapters.executor.engine import Rows
from diffuse_core.adapters.executor.lean.engine import LeanEngine
from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.domain.shapes import HIDDEN_TYPE
from diffuse_core.domain.slices import Slice
from tests.adapters.executor.cases import CASES, MIXED
from tests.adapters.executor.tiny import tiny_model

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from diffuse_core.adapters.executor.engine import Engine
    from diffuse_core.adapters.executor.lean.kv import LeanCache
    from diffuse_core.adapters.executor.stage_executor import StageExecutor
    from diffuse_core.domain.shapes import Contract
    from tests.adapters.executor.state_source import StateSource

LAYERS = 6
HIDDEN = 64
VOCAB = 101
CONTRACTS: tuple[Contract, ...] = ("fp32", "bf16", "int8", "int4")
KINDS = ("llama", "mistral", "qwen2", "qwen3", "smollm3")
WIDE = {"hidden_size": HIDDEN, "intermediate_size": 96, "initializer_range": 0.2}
MODELS: dict[str, tuple[str, Mapping[str, object]]] = {
    "llama": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("mistral", {"sliding_window": 8, "tie_word_embeddings": True}),
    "qwen2": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 8, "layer_types": MIXED},
    ),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "smollm3": ("smollm3", {"no_rope_layers": [0, 1, 1, 0, 1, 0]}),
}
FAMILY_CASES = [(kind, case) for kind in KINDS for case in CASES[kind]]


def some_soon(pairs: Iterable[tuple[str, str]], soon: Collection[tuple[str, str]]) -> list[object]:
    """Parameters of a test: those of `soon` run always, the others with the slow ones."""
    slow = pytest.mark.slow
    return [pytest.param(*pair, marks=[] if pair in soon else slow) for pair in pairs]


PAIRS = some_soon(
    [(name, contract) for name in MODELS for contract in CONTRACTS],
    {
        ("llama", "fp32"),
        ("mistral", "int4"),
        ("qwen2", "bf16"),
        ("qwen3", "int4"),
        ("smollm3", "int8"),
    },
)
"""Every model under every contract: each of both at once, all of them when there is time."""


def family_model(name: str) -> tuple[StateSource, torch.nn.Module]:
    """One of MODELS."""
    kind, settings = MODELS[name]
    return tiny_model(kind, LAYERS, **{**WIDE, **settings})


@cache
def lean_executor(
    name: str, contract: Contract, start: int = 0, end: int = LAYERS
) -> StageExecutor:
    """A slice of one of MODELS; loaded once, for engines keep nothing of a pass."""
    executor = load_slice(family_model(name)[0], Slice(start, end), contract, lambda _: None)
    assert isinstance(executor._engine, LeanEngine)
    return executor


def lean_engine(name: str, contract: Contract) -> LeanEngine:
    """The engine of all layers."""
    engine = lean_executor(name, contract)._engine
    assert isinstance(engine, LeanEngine)
    return engine


def lean_cut(name: str, contract: Contract, *borders: int) -> list[StageExecutor]:
    """The slices between the borders."""
    return [lean_executor(name, contract, a, b) for a, b in itertools.pairwise(borders)]


def hidden_type(contract: Contract) -> torch.dtype:
    """Of hidden states."""
    return torch.float32 if HIDDEN_TYPE[contract] == "fp32" else torch.bfloat16


def some_rows(part: Slice, count: int, contract: Contract, seed: int) -> torch.Tensor:
    """Token ids for a first part, else hidden states."""
    own = torch.Generator().manual_seed(seed)
    if part.start == 0:
        return torch.randint(0, VOCAB, (count,), generator=own)
    return torch.randn((count, HIDDEN), generator=own).to(hidden_type(contract))


@torch.inference_mode()
def alone(
    engine: Engine, cache: LeanCache, rows: torch.Tensor, *, want_logits: bool = True
) -> torch.Tensor | None:
    """One session's pass."""
    (outcome,) = engine.together([Rows(cache, rows, want_logits=want_logits)])
    return outcome


def tables(cache: LeanCache) -> list[torch.Tensor]:
    """The keys and values of each layer, as far as they are filled."""
    return [table[:, : cache.length].clone() for table in cache.tables]


def all_equal(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Bit for bit."""
    return len(one) == len(other) and all(
        torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )
