"""Words and figures of logprobs, however many and whatever Hosts sent."""

from __future__ import annotations

import math

import pytest

from diffuse_core.adapters.openai_server import logprobs
from diffuse_core.adapters.openai_server.logprobs import LEAST, Words, chat_logprobs, text_logprobs
from diffuse_core.adapters.openai_server.telling import Entry
from diffuse_core.domain.decoding import TokenLogprobs
from tests.adapters.openai_server.fake_answers import FakeAnswers
from tests.adapters.openai_server.web import Web


@pytest.mark.parametrize(
    ("sent", "told"), [(-0.5, -0.5), (-math.inf, LEAST), (math.nan, LEAST), (math.inf, 0.0)]
)
async def test_every_figure_can_be_written_as_json(sent: float, told: float) -> None:
    words = Words(FakeAnswers(), "tiny")
    entry = Entry(4, TokenLogprobs(sent, ((5, sent),)), 0)
    await words.learn([entry])
    (chat,) = chat_logprobs([entry], words)["content"]
    assert (chat["logprob"], chat["top_logprobs"][0]["logprob"]) == (told, told)
    text = text_logprobs([entry], words)
    assert (text["token_logprobs"], set(text["top_logprobs"][0].values())) == ([told], {told})


async def test_choices_with_many_words_have_all_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "MAX_WORDS", 4)
    told = await Web(FakeAnswers()).chat(n=3, logprobs=True, top_logprobs=5)
    for choice in told.json()["choices"]:
        tokens = [entry["token"] for entry in choice["logprobs"]["content"]]
        assert tokens == ["xxxxx", "xxxx", "xx", ""]
