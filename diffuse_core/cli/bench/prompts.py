"""Prompts of an exact number of tokens, from a model's own vocabulary."""

from __future__ import annotations

import random
from contextlib import aclosing
from typing import TYPE_CHECKING

from diffuse_core.domain.view import GenerateRequest, RouteChosen
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from diffuse_core.domain.view import ModelView
    from diffuse_core.services.client import ClientService

MAX_LOOKED_AT = 4096
LEAST_WORDS = 8
MOST_WORDS = 512
TRIES = 4
_LETTERS = (2, 12)


async def words_of(client: ClientService, model: ModelView, seed: int) -> list[str]:
    """Words of the vocabulary: what a token says by itself, without signs.

    Raises:
        UsageError: the model has hardly any.
    """
    size = model.shape.vocab if model.shape is not None else MAX_LOOKED_AT
    rng = random.Random(seed)  # noqa: S311  (no secret)
    ids = rng.sample(range(size), min(size, MAX_LOOKED_AT))
    name = f"{model.id}@{model.fingerprint}"
    texts = await client.token_texts(name, ids)
    found = [texts[token] for token in ids if _is_word(texts[token])]
    # A word with the space before it is one token where words stand in a row; a piece is not.
    # Digits are often tokens of their own.
    spaced = [text for text in found if text.startswith(" ")]
    lettered = [text for text in spaced if text[1:].isalpha()]
    best = next((kind for kind in (lettered, spaced) if len(kind) >= LEAST_WORDS), found)
    unique = list(dict.fromkeys(text.strip() for text in best))[:MOST_WORDS]
    if len(unique) < LEAST_WORDS:
        raise UsageError(f"{model.id} has hardly a word in its vocabulary to make a prompt of")
    return unique


def _is_word(text: str) -> bool:
    word = text.removeprefix(" ")
    fits = _LETTERS[0] <= len(word) <= _LETTERS[1]
    return fits and word.isascii() and word.isalnum()


def text_of(words: list[str], count: int, salt: int) -> str:
    """A text of so many words, another one for each salt.

    All begin with one word: without a space before it, others would be more tokens or fewer.
    """
    rng = random.Random(salt)  # noqa: S311  (no secret)
    return " ".join([words[0], *(rng.choice(words) for _ in range(count - 1))])


class Prompts:
    """Makes prompts of `tokens` tokens for one model, as exactly as it can."""

    def __init__(self, client: ClientService, model: str, words: list[str], seed: int) -> None:
        self._client = client
        self._model = model
        self._words = words
        self._seed = seed
        self._made = 0
        self._counts: dict[int, int] = {}

    def make(self, tokens: int) -> str:
        """A prompt that no cache has seen."""
        self._made += 1
        count = self._counts.get(tokens, tokens)
        return text_of(self._words, count, self._seed * 1_000_003 + self._made)

    async def fit(self, tokens: int) -> None:
        """Find out how many words make so many tokens: by asking for one token, a few times."""
        for _ in range(TRIES):
            got = await self._length(self.make(tokens))
            if got == tokens:
                return
            count = self._counts.get(tokens, tokens)
            step = tokens - got if abs(tokens - got) < count // 4 else 0
            self._counts[tokens] = max(1, count + step if step else count * tokens // got)

    async def _length(self, text: str) -> int:
        request = GenerateRequest(model=self._model, raw=text, max_tokens=1, ignore_eos=True)
        length = 1
        async with aclosing(self._client.generate(request)) as events:
            async for event in events:
                if isinstance(event, RouteChosen):
                    length = max(1, event.prompt_tokens)
        return length
