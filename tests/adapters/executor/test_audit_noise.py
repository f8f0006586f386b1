"""Honest replicas of the demo model compute alike enough, however they are set up."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
import torch

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.models.gguf_source import GgufSource
from diffuse_core.domain import rms_band as code
from diffuse_core.domain.bundle import bundle_digest, open_bundle
from diffuse_core.domain.decoding import DecodingParams, SamplingParams
from diffuse_core.domain.examiner import Examiner
from diffuse_core.domain.sampling import Sampler
from diffuse_core.domain.shapes import ITEM_BYTES
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.spots import NEARLY, compare, drawn_so, numbers, pick, widened
from diffuse_core.model_ports import StageStep, Tensor
from diffuse_core.wiring import open_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from diffuse_core.adapters.executor.stage_executor import StageExecutor
    from diffuse_core.domain.decoding import Drawn
    from diffuse_core.model_ports import StageResult, TokenChooser

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PROMPT, DRAWN, WIDTH = 60, 20, 576
SAMPLINGS = [
    SamplingParams(),
    SamplingParams(temperature=0.8, seed=1),
    SamplingParams(temperature=1.0, top_p=0.9, top_k=40, min_p=0.05, seed=2),
    SamplingParams(temperature=0.7, repetition_penalty=1.1, presence_penalty=0.5, seed=3),
]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def prompt(source: GgufSource) -> tuple[int, ...]:
    bundle = source.bundle()
    tokenizer = open_tokenizer(open_bundle(bundle, bundle_digest(bundle)))
    return tuple(tokenizer.encode(Path(code.__file__).read_text("utf-8"))[:PROMPT])


class Both:
    """Two examiners of the same rows."""

    def __init__(self, one: Examiner, other: Examiner) -> None:
        self._each = (one, other)

    def choose(
        self, logits: NDArray[np.float32], position: int, drafts: Sequence[int]
    ) -> tuple[Drawn, ...]:
        self._each[1].choose(logits, position, drafts)
        return self._each[0].choose(logits, position, drafts)


class Row:
    """One row after the other, as a generation goes."""

    def __init__(self, executor: StageExecutor) -> None:
        self.executor = executor
        executor.open(b"s" * 16, executor.slice, PROMPT + DRAWN + 1)

    def run(
        self, position: int, given: Sequence[int] | Tensor, chooser: TokenChooser | None = None
    ) -> StageResult:
        hidden = given if isinstance(given, Tensor) else None
        step = StageStep(
            session=b"s" * 16,
            part=self.executor.slice,
            position=position,
            tokens=None if hidden is not None else tuple(given),
            hidden=hidden,
            alone=position >= PROMPT,
            chooser=chooser,
        )
        return self.executor.run([step])[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.executor.close(b"s" * 16)


def sampled(data: Sequence[bytes], contract: str) -> tuple[float, ...]:
    item = ITEM_BYTES[contract]
    spots = random.Random(5).sample(range(WIDTH), 16)
    body = b"".join(data)
    rows = len(body) // (WIDTH * item)
    return numbers(widened(pick(body, rows, WIDTH, item, spots), item))


@pytest.mark.parametrize("contract", ["bf16", "fp32", "int4"])
def test_engines_and_threads_differ_by_less_than_the_tolerance(
    demo_gguf: Path, contract: str
) -> None:
    """The lean engine draws; the general one, or the same with two threads, examines it.

    Two threads are tried seldom: they wait for each other whenever other processes compute.
    """
    source = GgufSource(demo_gguf)
    tokens, cuts = prompt(source), (Slice(0, 14), Slice(14, 30))
    front, back = (load_slice(source, part, contract, lambda _: None) for part in cuts)
    lean = contract == "int4"
    others = [load_slice(source, part, contract, lambda _: None, lean=lean) for part in cuts]
    cases = zip((2, 2) if lean else (2, 1), SAMPLINGS[::3] if lean else SAMPLINGS[2:], strict=True)
    for threads, sampling in cases:
        decoding = DecodingParams(DRAWN, sampling)
        torch.set_num_threads(1)
        steps, drawn = answered(front, back, tokens, Sampler(decoding, PROMPT, (), tokens))
        torch.set_num_threads(threads)
        with Row(others[0]) as again:
            gave = [bytes(again.run(at, ids).hidden.data) for at, ids, _ in steps]
        mine = sampled([bytes(hidden.data) for _, _, hidden in steps], contract)
        assert compare(sampled(gave, contract), mine, 16, contract) == "agrees"
        # An answer that was made up cannot have been drawn.
        made_up = [(7 * one + 1) % 49_152 for one in drawn]
        margins, false = examined(
            others[1],
            steps,
            Examiner(decoding, PROMPT, drawn, tokens, NEARLY[contract]),
            Examiner(decoding, PROMPT, made_up, tokens, NEARLY[contract]),
        )
        assert drawn_so(margins, contract) == "agrees", max(margins)
        wrong = [drawn_so([one], contract) for one in false]
        assert wrong.count("differs") > DRAWN // 3


def answered(
    front: StageExecutor, back: StageExecutor, tokens: tuple[int, ...], sampler: Sampler
) -> tuple[list[tuple[int, tuple[int, ...], Tensor]], list[int]]:
    """The steps of an answer, with what the first Stage gave in each, and its tokens."""
    given, drawn, steps = tokens, [], []
    with Row(front) as first, Row(back) as last:
        for at in range(DRAWN):
            position = PROMPT + at - 1 if at else 0
            hidden = first.run(position, given).hidden
            steps.append((position, given, hidden))
            given = (last.run(position, hidden, sampler).drawn[-1].token,)
            drawn.append(given[0])
    return steps, drawn


def examined(
    executor: StageExecutor,
    steps: Sequence[tuple[int, tuple[int, ...], Tensor]],
    *examiners: Examiner,
) -> list[tuple[float, ...]]:
    """How far each token was out of reach, for each of two examiners."""
    with Row(executor) as row:
        for at, _, hidden in steps:
            row.run(at, hidden, Both(*examiners))
    told = [numbers(one.tell(0, DRAWN)) for one in examiners]
    assert [len(one) for one in told] == [2 * DRAWN] * 2
    return [one[1::2] for one in told]
