"""Does a model say the same in slices? Every cut of a user's own model against the whole."""

from __future__ import annotations

import contextlib
import gc
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from diffuse_core.adapters.executor.library_model import LibraryModel
from diffuse_core.adapters.executor.loader import load_engine
from diffuse_core.adapters.executor.script import Chain, greedy, script
from diffuse_core.domain.shapes import HIDDEN_TYPE
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable, Refused, UsageError
from diffuse_core.services.verification import (
    Outcome,
    Report,
    Said,
    cuts,
    loaded_cuts,
    names,
    windows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.adapters.executor.engine import Engine
    from diffuse_core.adapters.executor.script import Step
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import Progress, WeightSource
    from diffuse_core.services.devices import Device
    from diffuse_core.services.verification import Prompt, Tell

    Outputs = list[list[torch.Tensor]]

LOAD_WORTH = 4
"""Loading the model counts as so many cuts in the fraction that is told."""


@dataclass
class _Played:
    """What a chain gave, step by step; how long it took, and how many tokens a second."""

    outputs: Outputs
    seconds: float
    rate: float = 0.0


class Verification:
    """One model under one contract on one device."""

    def __init__(
        self,
        source: WeightSource,
        contract: Contract,
        device: Device,
        prompts: Sequence[Prompt],
        count: int,
        tell: Tell,
    ) -> None:
        """`count` tokens are generated from each of the `prompts`."""
        self._source = source
        self._contract = contract
        self._device = device
        self._prompts = prompts
        self._count = count
        self._tell = tell
        self._shape = source.shape(contract)
        self._whole = Slice(0, self._shape.layers)
        self._outcomes: list[Outcome] = []
        self._done = 0.0
        self._total = 1.0

    def run(self, capacity: int, *, against_library: bool) -> Report:
        """Verify, holding at most about `capacity` bytes of weights at a time.

        A model that does not fit is verified in windows of layers, one after the other: on
        tokens that are given, for it cannot generate any.

        Raises:
            ModelUnusable: the model cannot be read or gives numbers that are not finite.
            UsageError: not even two layers fit, or not the whole where the library's is wanted;
                the contract is not computed for the model.
        """
        fits = self._shape.weight_bytes(self._whole) <= capacity
        if against_library and not fits:
            raise UsageError(
                "the model does not fit whole into what may be taken, which --against-library "
                "needs; leave it out, or free memory"
            )
        try:
            said = self._in_memory(against_library) if fits else self._windowed(capacity)
        except Refused as refusal:
            raise ModelUnusable(f"the whole model cannot be run: {refusal}") from refusal
        return Report(
            model=self._source.id,
            contract=self._contract,
            device=self._device.kind,
            threads=self._device.threads,
            layers=self._shape.layers,
            whole=fits,
            said=said,
            outcomes=tuple(self._outcomes),
        )

    def _in_memory(self, against_library: bool) -> tuple[Said, ...]:
        layers = self._shape.layers
        tried, loaded = cuts(layers), loaded_cuts(layers)
        loads = 1 + len(loaded) + against_library
        self._total = LOAD_WORTH * loads + len(tried) + len(loaded) + 2 + against_library
        whole = self._load(self._whole)
        self._tell("running the whole", self._done / self._total)
        steps, expected, drawn = self._generate(whole)
        self._advance()
        self._alone(whole, steps, expected)
        for parts in tried:
            self._try(parts, [whole] * len(parts), steps, expected)
        # What follows needs the memory.
        del whole
        gc.collect()
        for parts in loaded:
            engines = [self._load(part) for part in parts]
            self._try(parts, engines, steps, expected, loaded=True)
            del engines
            gc.collect()
        if against_library:
            self._against_library(steps, expected, drawn)
        return tuple(
            Said(prompt, tuple(own)) for prompt, own in zip(self._prompts, drawn, strict=True)
        )

    def _generate(self, whole: Engine) -> tuple[list[Step], Outputs, list[list[int]]]:
        """Greedy generation by the whole: the steps, what they gave, and the tokens drawn."""
        chain = self._chain([(whole, self._whole)])
        steps: list[Step] = []
        expected: Outputs = []
        work = script([prompt.tokens for prompt in self._prompts], self._count)
        try:
            step = next(work)
            while True:
                steps.append(step)
                expected.append(chain.run(step))
                step = work.send([greedy(logits) for logits in expected[-1]])
        except StopIteration as end:
            return steps, expected, end.value

    def _alone(self, whole: Engine, steps: Sequence[Step], expected: Outputs) -> None:
        """Each prompt by itself through the whole: company must not change what is said."""
        if len(self._prompts) < 2:
            return
        self._tell("running each prompt alone", self._done / self._total)
        started = time.perf_counter()
        chains = [self._chain([(whole, self._whole)]) for _ in self._prompts]
        outputs: Outputs = []
        for step in steps:
            found = []
            for row in step.rows:
                one = type(step)((row,), step.together, step.back)
                found += chains[row[0]].run(one)
            outputs.append(found)
        played = _Played(outputs, time.perf_counter() - started)
        self._record("whole, prompts one by one", (self._whole,), played, expected)

    def _try(
        self,
        parts: tuple[Slice, ...],
        engines: Sequence[Engine],
        steps: Sequence[Step],
        expected: Outputs,
        inputs: Outputs | None = None,
        *,
        loaded: bool = False,
    ) -> None:
        way = f"cut {names(parts)}" + (", loaded apart" if loaded else "")
        stages = list(zip(engines, parts, strict=True))
        self._tell(way, self._done / self._total)
        played = self._play(stages, steps, inputs)
        self._record(way, parts, played, expected, loaded=loaded)

    def _play(
        self,
        stages: Sequence[tuple[Engine, Slice]],
        steps: Sequence[Step],
        inputs: Outputs | None,
    ) -> _Played:
        chain = self._chain(stages)
        played = _Played([], 0.0)
        drawn, drawing = 0, 0.0
        for number, step in enumerate(steps):
            started = time.perf_counter()
            played.outputs.append(chain.run(step, None if inputs is None else inputs[number]))
            spent = time.perf_counter() - started
            played.seconds += spent
            if step.together and not step.back:
                drawn += len(step.rows)
                drawing += spent
        played.rate = drawn / drawing if drawn else 0.0
        return played

    def _record(
        self,
        way: str,
        parts: tuple[Slice, ...],
        played: _Played,
        expected: Outputs,
        *,
        loaded: bool = False,
    ) -> None:
        pairs = [
            pair
            for ours, wanted in zip(played.outputs, expected, strict=True)
            for pair in zip(ours, wanted, strict=True)
        ]
        same_bits = all(torch.equal(a, b) for a, b in pairs)
        outcome = Outcome(
            way=way,
            parts=parts,
            loaded=loaded,
            same_tokens=same_bits or all(_same_token(a, b) for a, b in pairs),
            same_bits=same_bits,
            difference=0.0 if same_bits else max(_difference(a, b) for a, b in pairs),
            seconds=played.seconds,
            tokens_per_s=played.rate,
        )
        self._outcomes.append(outcome)
        self._advance()

    def _against_library(
        self, steps: Sequence[Step], expected: Outputs, drawn: Sequence[Sequence[int]]
    ) -> None:
        """The whole's tokens against `generate`, and its logits against one plain pass."""
        way = "transformers' generate"
        self._tell(f"loading {way}", self._done / self._total)
        library = LibraryModel(self._source, self._told_load(way, LOAD_WORTH), self._device.kind)
        self._advance(LOAD_WORTH)
        self._tell(way, self._done / self._total)
        started = time.perf_counter()
        same, difference = True, 0.0
        plain = []
        for prompt, own in zip(self._prompts, drawn, strict=True):
            same &= library.generate(prompt.tokens, self._count) == list(own)
            plain.append(library.logits([*prompt.tokens, *own]))
        lengths = [0] * len(self._prompts)
        for step, outputs in zip(steps, expected, strict=True):
            for (session, tokens), logits in zip(step.rows, outputs, strict=True):
                lengths[session] += len(tokens) - step.back
                wanted = plain[session][lengths[session] - 1]
                difference = max(difference, _difference(logits, wanted))
        self._outcomes.append(
            Outcome(
                way=way,
                parts=(),
                loaded=True,
                same_tokens=same,
                same_bits=difference == 0.0,
                difference=difference,
                seconds=time.perf_counter() - started,
                tokens_per_s=0.0,
            )
        )
        self._advance()

    def _windowed(self, capacity: int) -> tuple[Said, ...]:
        parts = windows(self._shape, capacity)
        self._total = sum(LOAD_WORTH + 1 + len(part) for part in parts)
        steps = self._given_steps()
        inputs: Outputs | None = None
        for part in parts:
            inputs = self._window(part, steps, inputs)
            gc.collect()
        return ()

    def _window(self, part: Slice, steps: Sequence[Step], inputs: Outputs | None) -> Outputs:
        """Try every cut inside of `part`; the inputs of the next window."""
        engine = self._load(part)
        expected = self._play([(engine, part)], steps, inputs).outputs
        if not all(bool(torch.isfinite(one).all()) for step in expected for one in step):
            raise ModelUnusable(f"layers {part} give numbers that are not finite")
        self._advance()
        for cut in range(part.start + 1, part.end):
            two = (Slice(part.start, cut), Slice(cut, part.end))
            self._try(two, [engine, engine], steps, expected, inputs)
        if part.end == self._shape.layers:
            return expected
        # The next window begins one layer earlier, so that this border is inside of it.
        before = Slice(part.start, part.end - 1)
        return self._play([(engine, before)], steps, inputs).outputs

    def _given_steps(self) -> list[Step]:
        """The script with tokens of the prompts in place of drawn ones."""
        given = [token for prompt in self._prompts for token in prompt.tokens]
        work = script([prompt.tokens for prompt in self._prompts], self._count)
        steps = [next(work)]
        with contextlib.suppress(StopIteration):
            while True:
                token = given[len(steps) % len(given)]
                steps.append(work.send([token for _ in steps[-1].rows]))
        return steps

    def _chain(self, stages: Sequence[tuple[Engine, Slice]]) -> Chain:
        budget = max(len(prompt.tokens) for prompt in self._prompts) + self._count
        dtype = HIDDEN_TYPE[self._contract]
        return Chain(stages, len(self._prompts), budget, dtype, self._shape.layers)

    def _load(self, part: Slice) -> Engine:
        worth = LOAD_WORTH * len(part) / self._shape.layers
        told = self._told_load(f"layers {part}", worth)
        engine = load_engine(self._source, part, self._contract, told, device=self._device.kind)
        self._advance(worth)
        return engine

    def _told_load(self, what: str, worth: float) -> Progress:
        def told(fraction: float) -> None:
            self._tell(f"loading {what}", (self._done + worth * fraction) / self._total)

        return told

    def _advance(self, worth: float = 1) -> None:
        self._done += worth


def _same_token(ours: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Of hidden states there is no token: only the same bits are known to lead to the same."""
    if ours.dim() != 1:
        return torch.equal(ours, wanted)
    return bool(torch.isfinite(ours).all()) and greedy(ours) == greedy(wanted)


def _difference(ours: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((ours.to(torch.float32) - wanted.to(torch.float32)).abs().max())
