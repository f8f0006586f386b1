"""Tiny random models of every proven architecture, and a way to run a prompt through slices."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from diffuse_core.adapters.executor.loader import load_slice, set_threads
from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.domain.slices import Slice
from diffuse_core.ports import StageStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from diffuse_core.adapters.executor.stage_executor import StageExecutor
    from diffuse_core.ports import StageResult, Tensor, WeightSource

SIZES = {
    "vocab_size": 101,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    # Wide enough that the logits of random weights differ clearly.
    "initializer_range": 0.3,
    "attn_implementation": "sdpa",
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    set_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_model(tmp_path: Path) -> Callable:
    """Save a random model; give its directory and the model itself, the reference."""

    def make(
        kind: str, layers: int = 6, dtype: torch.dtype = torch.float32, **settings: object
    ) -> tuple[Path, torch.nn.Module]:
        torch.manual_seed(len(kind) * 100 + layers)
        config = CONFIG_MAPPING[kind](**{**SIZES, "num_hidden_layers": layers, **settings})
        model = AutoModelForCausalLM.from_config(config).eval()
        model.generation_config.eos_token_id = None
        directory = tmp_path / f"{kind}-{layers}"
        model.save_pretrained(directory)
        if dtype != torch.float32:
            # Read back rather than cast: a cast would round the rotary frequencies too.
            model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype).eval()
        return directory, model

    return make


@pytest.fixture
def load() -> Callable:
    """Load the slices whose borders are given; fp32 unless said otherwise."""

    def make(
        source: WeightSource | Path, borders: Sequence[int], contract: str = "fp32"
    ) -> list[StageExecutor]:
        origin = source if hasattr(source, "read") else DirectorySource(source)
        return [
            load_slice(origin, Slice(a, b), contract, lambda _: None)
            for a, b in itertools.pairwise(borders)
        ]

    return make


class Chain:
    """The stages of one generation, in the test's own process."""

    def __init__(
        self,
        executors: Sequence[StageExecutor],
        session: bytes = b"s" * 16,
        parts: Sequence[Slice] | None = None,
        budget: int = 128,
    ) -> None:
        self.executors = executors
        self.session = session
        self.parts = parts or [executor.slice for executor in executors]
        self.position = 0
        for executor, part in zip(executors, self.parts, strict=True):
            executor.open(session, part, budget)

    def step(
        self, tokens: Sequence[int], hidden: Tensor | None = None, *, want_token: bool = True
    ) -> StageResult:
        """Run tokens (or, when the first stage is no first slice, hidden states) through all."""
        result = None
        for index, (executor, part) in enumerate(zip(self.executors, self.parts, strict=True)):
            result = executor.run(
                StageStep(
                    session=self.session,
                    part=part,
                    position=self.position,
                    tokens=None if hidden else tuple(tokens),
                    hidden=hidden,
                    want_token=want_token and index == len(self.parts) - 1,
                )
            )
            hidden = result.hidden
        self.position += len(tokens)
        return result

    def generate(self, prompt: Sequence[int], count: int) -> list[int]:
        """Greedy: the prompt in one pass, then token by token."""
        drawn = [self.step(prompt).token]
        while len(drawn) < count:
            drawn.append(self.step(drawn[-1:]).token)
        return drawn

    def crop(self, length: int) -> None:
        for executor in self.executors:
            executor.crop(self.session, length)
        self.position = length

    def close(self) -> None:
        for executor in self.executors:
            executor.close(self.session)


@pytest.fixture
def chain() -> type[Chain]:
    return Chain


@pytest.fixture
def reference() -> Callable:
    """What `transformers` itself says, greedily."""

    def make(model: torch.nn.Module, prompt: Sequence[int], count: int) -> list[int]:
        ids = torch.tensor([list(prompt)])
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=count,
                do_sample=False,
                pad_token_id=0,
            )
        return out[0, len(prompt) :].tolist()

    return make
