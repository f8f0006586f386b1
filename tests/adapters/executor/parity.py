"""Running one schedule of passes through any cut of a model, and keeping every row of logits."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import torch

from diffuse_core.adapters.executor.engine import Rows
from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.domain.slices import Slice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.adapters.executor.engine import Engine
    from diffuse_core.adapters.executor.stage_executor import StageExecutor
    from diffuse_core.model_ports import WeightSource

CHUNKS = (5, 1, 9, 4)
STEPS = 24
CROP_AT, CROP_BY = 14, 5
PROMPT = tuple((37 * i * i + 11) % 101 for i in range(sum(CHUNKS)))


class Played(NamedTuple):
    """What a schedule gave: the tokens drawn, and (position, logits) of every pass."""

    drawn: list[int]
    logits: list[tuple[int, torch.Tensor]]


class EngineChain:
    """The engines of one cut, and a cache in each."""

    def __init__(self, executors: Sequence[StageExecutor], budget: int = 128) -> None:
        self.engines: list[Engine] = [executor._engine for executor in executors]
        self.caches = [
            engine.open(executor.slice, budget)
            for engine, executor in zip(self.engines, executors, strict=True)
        ]

    @property
    def length(self) -> int:
        return self.caches[0].length

    @torch.inference_mode()
    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """Run tokens through all; the last row's logits."""
        rows: torch.Tensor | None = torch.tensor(list(tokens))
        for engine, cache in zip(self.engines, self.caches, strict=True):
            last = cache is self.caches[-1]
            (rows,) = engine.together([Rows(cache, rows, want_logits=last)])
        return rows

    def crop(self, length: int) -> None:
        for cache in self.caches:
            cache.crop(length)


class Cutter:
    """Loads slices of one model, each once: most cuts share some."""

    def __init__(self, source: WeightSource, contract: str = "fp32") -> None:
        self._source = source
        self._contract = contract
        self._known: dict[Slice, StageExecutor] = {}

    def __call__(self, *borders: int) -> list[StageExecutor]:
        return [self._load(Slice(a, b)) for a, b in itertools.pairwise(borders)]

    def _load(self, part: Slice) -> StageExecutor:
        if part not in self._known:
            self._known[part] = load_slice(
                self._source, part, self._contract, lambda _: None, lean=False
            )
        return self._known[part]


def cuts(layers: int) -> list[tuple[int, ...]]:
    """Every cut into two, several into three and four."""
    two = [(0, at, layers) for at in range(1, layers)]
    three = [(0, 1, 2, layers), (0, 2, layers - 1, layers)]
    four = [(0, 1, 2, layers - 1, layers), (0, 2, 3, layers - 1, layers)]
    return [*two, *three, *four]


def play(executors: Sequence[StageExecutor]) -> Played:
    """The prompt in uneven chunks, greedy steps, some taken back and run again in a bunch."""
    chain = EngineChain(executors)
    played = Played([], [])

    def step(tokens: Sequence[int]) -> int:
        logits = chain.logits(tokens)
        played.logits.append((chain.length - 1, logits))
        return int(logits.argmax())

    start = 0
    for count in CHUNKS[:-1]:
        step(PROMPT[start : start + count])
        start += count
    drawn = played.drawn
    drawn.append(step(PROMPT[start:]))
    while len(drawn) < STEPS:
        if len(drawn) == CROP_AT:
            chain.crop(chain.length - CROP_BY)
            again = drawn[-1 - CROP_BY : -1]
            for tokens in (again[:3], again[3:4], again[4:]):
                step(tokens)
        drawn.append(step(drawn[-1:]))
    return played


def same(one: Played, other: Played) -> bool:
    """Bit for bit."""
    return one.drawn == other.drawn and all(
        at == there and torch.equal(a, b)
        for (at, a), (there, b) in zip(one.logits, other.logits, strict=True)
    )


def strays(played: Played, model: torch.nn.Module) -> float:
    """How far logits are from those of the library's one pass, in parts of the largest."""
    with torch.inference_mode():
        ids = torch.tensor([[*PROMPT, *played.drawn]])
        wanted = model(input_ids=ids, use_cache=False).logits[0].float()
    return max(
        float((logits - wanted[at]).abs().max() / wanted[at].abs().max())
        for at, logits in played.logits
    )


def generated(model: torch.nn.Module, prompt: Sequence[int], count: int) -> list[int]:
    """What `transformers` itself says, greedily."""
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
