"""Every architecture, cut at every place: the same bits as uncut, the same text as the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from diffuse_core.adapters.executor.architectures import PROVEN
from diffuse_core.domain.slices import Slice
from diffuse_core.model_ports import StageStep
from tests.adapters.executor.cases import CASES
from tests.adapters.executor.parity import (
    PROMPT,
    STEPS,
    Cutter,
    EngineChain,
    cuts,
    generated,
    play,
    same,
    strays,
)
from tests.adapters.executor.stages import Chain
from tests.adapters.executor.tiny import tiny_model
from tests.greedy import GREEDY, last_token

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diffuse_core.adapters.executor.stage_executor import StageExecutor
    from tests.adapters.executor.state_source import StateSource

# The first case of each has two cuts in the default run; all have every cut in the slow one.
FIRST = [(kind, next(iter(cases))) for kind, cases in CASES.items()]
ALL = [(kind, word) for kind, cases in CASES.items() for word in cases]


# What differs in how rows of several sessions could come together.
BATCHED = ("llama", "gemma3_text", "mixtral", "gpt_oss", "gpt2", "opt", "bloom")


def made(
    case: tuple[str, str], dtype: torch.dtype = torch.float32
) -> tuple[StateSource, torch.nn.Module, int]:
    """The source, the reference, and the number of layers."""
    kind, word = case
    settings = CASES[kind][word]
    listed = [len(v) for k, v in settings.items() if k in ("layer_types", "no_rope_layers")]
    layers = listed[0] if listed else 5
    return *tiny_model(kind, layers, dtype, **settings), layers


def named(case: tuple[str, str]) -> str:
    return "-".join(case).replace(" ", "-")


def check(case: tuple[str, str], borders: Callable[[int], Sequence[tuple[int, ...]]]) -> None:
    source, model, layers = made(case)
    cut = Cutter(source)
    whole = play(cut(0, layers))
    assert whole.drawn == generated(model, PROMPT, STEPS)
    assert strays(whole, model) < 1e-3
    for border in borders(layers):
        assert same(whole, play(cut(*border))), border


def test_every_proven_architecture_is_tried_here() -> None:
    assert set(CASES) == set(PROVEN)


def few_cuts(layers: int) -> list[tuple[int, ...]]:
    """In two, and in four of which some are a single layer."""
    return [(0, 2, layers), (0, 1, 2, layers - 1, layers)]


@pytest.mark.parametrize("case", FIRST, ids=named)
def test_slices_are_bit_equal_to_the_whole(case: tuple[str, str]) -> None:
    check(case, few_cuts)


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL, ids=named)
def test_every_cut_is_bit_equal_to_the_whole(case: tuple[str, str]) -> None:
    check(case, cuts)


@pytest.mark.parametrize("case", [c for c in FIRST if c[0] in BATCHED], ids=named)
def test_sessions_of_different_lengths_run_in_one_call(case: tuple[str, str]) -> None:
    run_together(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in ALL if c[0] not in BATCHED], ids=named)
def test_sessions_of_all_run_in_one_call(case: tuple[str, str]) -> None:
    run_together(case)


def run_together(case: tuple[str, str]) -> None:
    source, model, layers = made(case)
    stages = Cutter(source)(0, 2, layers)
    # One token alone, one within a window of 8, one beyond it.
    prompts = (PROMPT[:1], PROMPT[:6], PROMPT)
    drawn = together(stages, prompts, 6)
    assert drawn == [generated(model, prompt, 6) for prompt in prompts]


def together(
    stages: Sequence[StageExecutor], prompts: Sequence[Sequence[int]], count: int
) -> list[list[int]]:
    """Greedy, every pass with the steps of all sessions in one call."""
    ids = [bytes([65 + i]) * 16 for i in range(len(prompts))]
    for session in ids:
        for stage in stages:
            stage.open(session, stage.slice, 64)
    drawn: list[list[int]] = [[] for _ in prompts]
    positions = [0] * len(prompts)
    rows = [tuple(prompt) for prompt in prompts]
    while len(drawn[0]) < count:
        hidden = [None] * len(prompts)
        for stage in stages:
            results = stage.run(
                [
                    StageStep(
                        session=session,
                        part=stage.slice,
                        position=positions[i],
                        tokens=rows[i] if hidden[i] is None else None,
                        hidden=hidden[i],
                        chooser=GREEDY if stage is stages[-1] else None,
                    )
                    for i, session in enumerate(ids)
                ]
            )
            hidden = [result.hidden for result in results]
        positions = [at + len(given) for at, given in zip(positions, rows, strict=True)]
        rows = [(last_token(result),) for result in results]
        for tokens, result in zip(drawn, results, strict=True):
            tokens.append(last_token(result))
    return drawn


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL, ids=named)
def test_slices_agree_in_bf16(case: tuple[str, str]) -> None:
    source, model, layers = made(case, torch.bfloat16)
    cut = Cutter(source, "bf16")
    wanted = generated(model, PROMPT, 8)
    for borders in ((0, layers), (0, 2, layers), (0, 1, 3, layers)):
        chain = Chain(cut(*borders))
        assert chain.generate(PROMPT, 8) == wanted
        chain.close()


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL, ids=named)
def test_parts_of_one_slice_make_a_route(case: tuple[str, str]) -> None:
    source, model, layers = made(case)
    (whole,) = Cutter(source)(0, layers)
    parts = [Slice(0, 2), Slice(2, 4), Slice(4, layers)]
    wanted = generated(model, PROMPT, 8)
    engine = whole._engine
    caches = [engine.open(part, 64) for part in parts]
    chain = EngineChain([whole])
    chain.engines, chain.caches = [engine] * len(parts), caches
    drawn = [int(chain.logits(PROMPT).argmax())]
    while len(drawn) < 8:
        drawn.append(int(chain.logits(drawn[-1:]).argmax()))
    assert drawn == wanted
