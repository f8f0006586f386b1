"""Questions of which the right answers are known: one process with the whole model gives them.

Each prompt begins with a word that must not be found in any log.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import LogitsProcessor, LogitsProcessorList

from diffuse_core.adapters.tokenizer.bundle_tokenizer import load_tokenizer
from diffuse_core.domain.alternatives import alternative_seed
from diffuse_core.domain.bundle import bundle_digest, open_bundle
from diffuse_core.domain.decoding import DecodingParams, SamplingParams
from diffuse_core.domain.sampling import Sampler
from diffuse_core.wiring import model_store
from tests.bench.texts import long_prompt
from tests.chaos.ledger import CANARY
from tests.chaos.load_plan import MOST, MOST_AT_ONCE
from tests.services.tiny_model import ids, words

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import LlamaForCausalLM

    from tests.services.tiny_model import TinyModel

LENGTHS = (2, 5, 9, 14, 22, 40, 77, 160, 420, 1100)
"""Of prompts, in tokens: up to three pieces. Long ones are asked less often (see `load_plan`)."""
TEMPERATURE = 1.0
NEARLY_TIED = 1e-3
"""Of two logits: another order of the same sums could let either win."""
OTHER_SUMS = 2
"""So often a draw is made again from logits that differ by as much, to see whether it holds."""
DEMO_LENGTHS = (4, 40, 160)
DEMO_MOST = 32
"""One process with all of the demo model gives a dozen tokens a second."""


@dataclass(frozen=True)
class Question:
    """What is asked; `seed` None is greedy."""

    number: int
    length: int
    seed: int | None
    text: str
    ids: tuple[int, ...]

    @property
    def sampling(self) -> SamplingParams:
        """As the request has it."""
        if self.seed is None:
            return SamplingParams()
        return SamplingParams(temperature=TEMPERATURE, seed=self.seed)

    def seed_of(self, index: int) -> int | None:
        """The seed of the answer with this index among several."""
        return None if self.seed is None else alternative_seed(self.seed, index)


def tiny_questions(longest: int = LENGTHS[-1]) -> tuple[Question, ...]:
    """Those that the tiny model is asked: each length greedily, and drawn with a seed."""
    found: list[Question] = []
    for length in (one for one in LENGTHS if one <= longest):
        for seed in (None, 1000 + length):
            salt = len(found)
            text = f"{CANARY} {words(length, salt)}"
            found.append(Question(len(found), length, seed, text, (0, *ids(length, salt))))
    return tuple(found)


class _Draws(LogitsProcessor):  # type: ignore[misc]
    """Lets `generate` say what the Sampler draws; and how near another token was."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._noise = np.random.default_rng(1)
        self.certain = True

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        rows = scores.float().numpy()
        token = self._draw(rows, input_ids.shape[1])
        for _ in range(OTHER_SUMS):
            noise = self._noise.uniform(-NEARLY_TIED, NEARLY_TIED, rows.shape)
            near = self._draw((rows + noise).astype(np.float32), input_ids.shape[1])
            self.certain = self.certain and near == token
        chosen = torch.full_like(scores, -torch.inf)
        chosen[0, token] = 0.0
        return chosen

    def _draw(self, rows: Any, position: int) -> int:
        return self._sampler.choose(rows, position, ())[0].token


@dataclass
class RightAnswers:
    """Of each question and seed the first `most` tokens, the end of a turn ignored."""

    model: LlamaForCausalLM
    path: Path
    name: str
    stop_ids: tuple[int, ...]
    questions: tuple[Question, ...]
    most: int = MOST
    _known: dict[tuple[int, int | None], tuple[int, ...]] = field(default_factory=dict)

    async def learn(self) -> None:
        """Compute all; questions to which another answer is nearly as good are left out."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        kept = [one for one in self.questions if await asyncio.to_thread(self._learn, one)]
        self.questions = tuple(kept)
        torch.set_num_threads(threads)

    def _learn(self, question: Question) -> bool:
        seeds = {question.seed_of(index) for index in range(MOST_AT_ONCE)}
        for seed in seeds:
            tokens, certain = self._say(question, seed)
            if not certain:
                return False
            self._known[question.number, seed] = tokens
        return True

    def _say(self, question: Question, seed: int | None) -> tuple[tuple[int, ...], bool]:
        sampling = question.sampling
        if seed is not None:
            sampling = SamplingParams(temperature=TEMPERATURE, seed=seed)
        draws = _Draws(Sampler(DecodingParams(self.most, sampling), len(question.ids)))
        given = torch.tensor([question.ids])
        with torch.inference_mode():
            out = self.model.generate(
                given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=self.most,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
                logits_processor=LogitsProcessorList([draws]),
            )
        return tuple(out[0, len(question.ids) :].tolist()), draws.certain

    def right(self, question: Question, count: int, index: int = 0) -> tuple[int, ...]:
        """The first `count` tokens of the answer, of the one with this index among several."""
        return self._known[question.number, question.seed_of(index)][:count]

    def right_turn(self, question: Question, count: int, index: int = 0) -> tuple[int, ...]:
        """The same where the end of a turn ends it; that token is not part of it."""
        said = self.right(question, count, index)
        ends = [at for at, token in enumerate(said) if token in self.stop_ids]
        return said[: ends[0]] if ends else said


def of_tiny(model: TinyModel, longest: int = LENGTHS[-1]) -> RightAnswers:
    """Those of the tiny model, to prompts of up to so many tokens."""
    questions = tiny_questions(longest)
    return RightAnswers(model.reference, model.path, "tiny", model.stop_ids, questions)


def of_demo(path: Path) -> RightAnswers:
    """Those of the demo model, whose file is at `path`."""
    import gguf

    from tests.adapters.executor.test_real_model import reference_model

    source = model_store().open(str(path), lambda _: None)
    data = source.bundle()
    tokenizer = load_tokenizer(open_bundle(data, bundle_digest(data)))
    questions = []
    for length in DEMO_LENGTHS:
        for seed in (None, 1000 + length):
            text = f"{CANARY} {long_prompt(length, len(questions))}"
            ids_ = tuple(tokenizer.encode(text))
            questions.append(Question(len(questions), length, seed, text, ids_))
    model = reference_model(gguf.GGUFReader(path))
    return RightAnswers(
        model, path, source.id, tokenizer.stop_ids, tuple(questions), most=DEMO_MOST
    )
