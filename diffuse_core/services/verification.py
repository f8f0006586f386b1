"""Verifying a model: which cuts are tried, on what, and what came of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.shapes import Contract, ModelShape
    from diffuse_core.model_ports import DeviceKind
    from diffuse_core.ports import Tokenizer

SENTENCE = (
    "The ferry left the island at dawn, and the baker's daughter watched it from the wall with a "
    "loaf under each arm. Nobody had told her why"
)
CODE = "def mean(values: list[float]) -> float:\n    total = 0.0\n    for value in values:\n"
WORD = "The"
MAX_PROMPT = 64
"""Tokens of a prompt: enough for several chunks, and quick."""

Tell = Callable[[str, float], None]
"""Told what is being done, and the fraction 0..1 that is done."""


@dataclass(frozen=True)
class Prompt:
    """What a model is made to go on from."""

    name: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """How one way to run the model compares with the whole."""

    way: str
    parts: tuple[Slice, ...]
    loaded: bool
    """Each part was read from the files by itself, as a host does; else parts of one slice ran."""
    same_tokens: bool
    same_bits: bool
    """Every logit (between windows, every hidden state) is bit for bit the same."""
    difference: float
    """The largest between two logits; of windows, between two hidden numbers."""
    seconds: float
    tokens_per_s: float
    """While generating, of all prompts, which run side by side; 0 where that was not timed."""


@dataclass(frozen=True)
class Said:
    """What the whole model said to a prompt; no tokens when it was never held whole."""

    prompt: Prompt
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Report:
    """What came of a verification."""

    model: str
    contract: Contract
    device: DeviceKind
    threads: int
    layers: int
    whole: bool
    """The model was held whole; else one window of layers after the other."""
    said: tuple[Said, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def equal(self) -> bool:
        """Whether every way gave the whole's tokens."""
        return all(outcome.same_tokens for outcome in self.outcomes)

    @property
    def same_bits(self) -> bool:
        """Whether every cut gave the whole's very bits."""
        return all(outcome.same_bits for outcome in self.outcomes if outcome.parts)


def check_report(report: Report) -> None:
    """Refuse a model that did not say the same in slices.

    Raises:
        ModelUnusable: it did not; the message names the ways that differ.
    """
    wrong = [outcome.way for outcome in report.outcomes if not outcome.same_tokens]
    if wrong:
        named = ", ".join(wrong[:3]) + (", ..." if len(wrong) > 3 else "")
        raise ModelUnusable(
            f"{report.model} in {report.contract} differs from the whole in {len(wrong)} of "
            f"{len(report.outcomes)} ways to run it ({named}); do not serve it in this contract: "
            "try --dtype fp32, and report this"
        )


def sample_prompts(tokenizer: Tokenizer | None, vocab: int, room: int) -> tuple[Prompt, ...]:
    """A sentence, code and a single token of at most `room` tokens; scattered ids without words.

    Raises:
        UsageError: the model's context has no room.
    """
    if room < 1:
        raise UsageError("the model's context is too short for so many tokens; lower --tokens")
    length = min(room, MAX_PROMPT)
    if tokenizer is None:
        ids = tuple((7919 * i * i + 104_729 * i + 11) % vocab for i in range(1, 41))
        found = {"scattered ids": ids, "more ids": ids[::-3], "one token": ids[:1]}
    else:
        found = {
            "a sentence": tokenizer.encode(SENTENCE),
            "code": tokenizer.encode(CODE),
            "one token": tokenizer.encode(WORD)[-1:],
        }
    kept = (Prompt(name, tokens[:length]) for name, tokens in found.items())
    return tuple(p for p in kept if p.tokens and max(p.tokens) < vocab)


def cuts(layers: int) -> list[tuple[Slice, ...]]:
    """Every cut into two, and some into three and four, thinnest parts included."""
    half, third, fourth = layers // 2, max(1, layers // 3), max(1, layers // 4)
    inner: list[tuple[int, ...]] = [(cut,) for cut in range(1, layers)]
    inner += [(third, 2 * third), (1, layers - 1), (half, half + 1)]
    inner += [(fourth, 2 * fourth, 3 * fourth), (1, 2, layers - 1)]
    return _parts(inner, layers)


def loaded_cuts(layers: int) -> list[tuple[Slice, ...]]:
    """The cuts whose parts are also read from the files by themselves."""
    third = max(1, layers // 3)
    return _parts([(layers // 2,), (third, 2 * third)], layers)


def _parts(inner: list[tuple[int, ...]], layers: int) -> list[tuple[Slice, ...]]:
    borders = dict.fromkeys((0, *cut, layers) for cut in inner)
    return [
        tuple(Slice(a, b) for a, b in itertools.pairwise(cut))
        for cut in borders
        if all(a < b for a, b in itertools.pairwise(cut))
    ]


def windows(shape: ModelShape, capacity: int) -> list[Slice]:
    """Slices that fit one at a time, such that every border of layers lies inside of one.

    Raises:
        UsageError: not even two layers fit.
    """
    found: list[Slice] = []
    start = 0
    while not found or found[-1].end < shape.layers:
        end = shape.layers
        while end - start > 1 and shape.weight_bytes(Slice(start, end)) > capacity:
            end -= 1
        if end - start < 2:
            raise UsageError(
                f"layers {start}:{start + 2} need "
                f"{shape.weight_bytes(Slice(start, start + 2)) / 2**20:.1f} MiB, and "
                f"{capacity / 2**20:.1f} MiB may be taken: free memory, or choose another --dtype"
            )
        found.append(Slice(start, end))
        start = end - 1
    return found


def names(parts: Sequence[Slice]) -> str:
    """`0:10 10:20`."""
    return " ".join(map(str, parts))
