"""A fixed sequence of passes of several Sessions, and running it through a chain of parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from diffuse_core.adapters.executor.engine import Rows
from diffuse_core.adapters.executor.tensors import from_wire, to_wire
from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.sampling import sample

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from diffuse_core.adapters.executor.engine import Engine
    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import TensorType

TAKEN_BACK = 3
"""Positions cropped and run again in the middle, as rejected drafts are."""


@dataclass(frozen=True)
class Step:
    """One pass: tokens of some Sessions; `back` positions of each are taken back before."""

    rows: tuple[tuple[int, tuple[int, ...]], ...]
    together: bool
    back: int = 0


def script(
    prompts: Sequence[Sequence[int]], count: int
) -> Generator[Step, Sequence[int], list[list[int]]]:
    """Prompts in uneven chunks, then `count` tokens each; is sent the tokens that a step drew.

    Half-way a few positions are taken back and run again in one pass. Gives the tokens drawn.
    """
    drawn: list[list[int]] = []
    for session, prompt in enumerate(prompts):
        token = 0
        for chunk in uneven(prompt):
            (token,) = yield Step(((session, chunk),), together=False)
        drawn.append([token])
    for number in range(1, count):
        back = 0
        if number == max(1, count // 2):
            held = min(map(len, prompts)) + number - 1
            back = min(TAKEN_BACK, held - 1)
        fed = [(*prompt, *own) for prompt, own in zip(prompts, drawn, strict=True)]
        rows = tuple((session, tokens[-1 - back :]) for session, tokens in enumerate(fed))
        tokens = yield Step(rows, together=True, back=back)
        for own, token in zip(drawn, tokens, strict=True):
            own.append(token)
    return drawn


def uneven(prompt: Sequence[int]) -> list[tuple[int, ...]]:
    """Most of a prompt, a single token, and the rest."""
    first = max(1, 5 * len(prompt) // 8)
    chunks = (prompt[:first], prompt[first : first + 1], prompt[first + 1 :])
    return [tuple(chunk) for chunk in chunks if chunk]


class Chain:
    """Parts that run one after the other, with a cache for each Session on each.

    What passes between two goes through the bytes that would travel.
    """

    @torch.inference_mode()
    def __init__(
        self,
        stages: Sequence[tuple[Engine, Slice]],
        sessions: int,
        budget: int,
        dtype: TensorType,
        layers: int,
    ) -> None:
        self._stages = stages
        self._dtype = dtype
        self._last = stages[-1][1].end == layers
        self._caches = [
            [engine.open(part, budget) for _ in range(sessions)] for engine, part in stages
        ]

    @torch.inference_mode()
    def run(self, step: Step, hidden: Sequence[torch.Tensor] | None = None) -> list[torch.Tensor]:
        """What the last part gave for each Session: fp32 logits (vocab), or hidden states.

        `hidden` are the inputs of parts that do not begin the model.
        """
        sessions = [session for session, _ in step.rows]
        rows = list(hidden or (torch.tensor(tokens) for _, tokens in step.rows))
        final = len(self._stages) - 1
        for index, (engine, _) in enumerate(self._stages):
            caches = [self._caches[index][session] for session in sessions]
            if step.back:
                for cache in caches:
                    cache.crop(cache.length - step.back)
            batch = [
                Rows(cache, row, want_logits=self._last and index == final)
                for cache, row in zip(caches, rows, strict=True)
            ]
            rows = _pass(engine, batch, together=step.together)
            if index < final or not self._last:
                rows = [from_wire(to_wire(row.cpu(), self._dtype)) for row in rows]
        return [row.cpu() for row in rows]


def greedy(logits: torch.Tensor) -> int:
    """The token that a last Stage would draw.

    Raises:
        Refused: the logits are not finite.
    """
    return sample(logits.numpy(), SamplingParams(), 0)


def _pass(engine: Engine, batch: Sequence[Rows], *, together: bool) -> list[torch.Tensor]:
    outputs: Sequence[torch.Tensor | None]
    if together:
        outputs = engine.together(batch)
    else:
        outputs = [_exhausted(engine.bit_by_bit(rows)) for rows in batch]
    found = [output for output in outputs if output is not None]
    if len(found) != len(batch):
        raise RuntimeError("a pass gave nothing where logits or hidden states were wanted")
    return found


def _exhausted(work: Generator[None, None, torch.Tensor | None]) -> torch.Tensor | None:
    while True:
        try:
            next(work)
        except StopIteration as stop:
            output: torch.Tensor | None = stop.value
            return output
