"""Text completions, and logprobs in both shapes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.adapters.openai_server.fake_answers import FakeAnswers
from tests.adapters.openai_server.web import Web


async def test_a_whole_answer_has_the_shape_of_the_reference() -> None:
    answers = FakeAnswers()
    told = await Web(answers).text(best_of=1, echo=False, suffix=None)
    answer = told.json()
    assert answer["id"].startswith("cmpl-")
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [
        {"index": 0, "text": "Hello world", "logprobs": None, "finish_reason": "stop"}
    ]
    assert answers.requests[0].raw == "Once"
    assert answers.requests[0].messages == ()


async def test_several_prompts_with_several_choices_each() -> None:
    answers = FakeAnswers()
    told = await Web(answers).text(prompt=["a", "b"], n=2, seed=9)
    answer = told.json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == 14
    asked = sorted((request.raw or "", request.sampling.seed) for request in answers.requests)
    assert [raw for raw, _ in asked] == ["a", "a", "b", "b"]
    # Each prompt is answered as it would be alone.
    assert {seed for raw, seed in asked if raw == "a"} == {s for raw, s in asked if raw == "b"}
    assert (asked[0][1] == 9) or (asked[1][1] == 9)


async def test_a_stream_of_text() -> None:
    told = await Web(FakeAnswers()).text(stream=True, stream_options={"include_usage": True})
    *chunks, last = told.chunks()
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["Hello", " wor", "ld", ""]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert last["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("stream", [False, True])
async def test_offsets_count_what_is_held_back(stream: bool) -> None:
    """As the text is "abcd": "b", then "c", may begin a stop string, and come with "d"."""
    answers = FakeAnswers(says=("a", "", "", "bcd"), holds=(0, 1, 2, 0))
    told = await Web(answers).text(logprobs=0, stream=stream, stop="bcX")
    parts = told.chunks() if stream else [told.json()]
    choices = [part["choices"][0] for part in parts]
    offsets = [at for each in choices for at in (each["logprobs"] or {}).get("text_offset", ())]
    assert offsets == [0, 1, 2, 3, 4]
    assert "".join(each["text"] for each in choices) == "abcd"


@pytest.mark.parametrize("stream", [False, True])
async def test_text_logprobs_are_lists_side_by_side(stream: bool) -> None:
    told = await Web(FakeAnswers()).text(logprobs=2, stream=stream)
    found: dict[str, list[Any]] = {}
    answers = told.chunks() if stream else [told.json()]
    for answer in answers:
        for name, values in (answer["choices"][0]["logprobs"] or {}).items():
            found.setdefault(name, []).extend(values)
    assert found["tokens"] == ["xxxxx", "xxxx", "xx", ""]
    assert found["token_logprobs"] == [-0.5, -0.5, -0.5, -9999.0]
    assert found["text_offset"] == [0, 5, 9, 11]
    assert found["top_logprobs"][0] == {"xxxxx": -0.5, "xxxxxx": -1.5}


async def test_text_logprobs_of_none_have_the_drawn_token() -> None:
    told = await Web(FakeAnswers()).text(logprobs=0)
    assert told.json()["choices"][0]["logprobs"]["top_logprobs"][1] == {"xxxx": -0.5}


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_logprobs_are_as_many_as_tokens(stream: bool) -> None:
    told = await Web(FakeAnswers(says=("abc", ""))).chat(
        logprobs=True, top_logprobs=2, stream=stream, stream_options=(stream and {}) or None
    )
    answers = told.chunks() if stream else [told.json()]
    content = [
        entry
        for answer in answers
        if answer["choices"][0]["logprobs"]
        for entry in answer["choices"][0]["logprobs"]["content"]
    ]
    assert len(content) == 3
    assert content[0] == {
        "token": "xxx",
        "logprob": -0.5,
        "bytes": None,
        "top_logprobs": [
            {"token": "xxx", "logprob": -0.5, "bytes": None},
            {"token": "xxxx", "logprob": -1.5, "bytes": [120] * 4},
        ],
    }
    assert content[-1]["logprob"] == -9999.0


async def test_a_model_that_has_gone_leaves_tokens_without_a_text() -> None:
    from diffuse_core.errors import ModelUnknown

    class Forgetful(FakeAnswers):
        async def token_texts(self, model: str, tokens: object) -> dict[int, str]:
            raise ModelUnknown("gone")

    told = await Web(Forgetful()).chat(logprobs=True)
    content = told.json()["choices"][0]["logprobs"]["content"]
    assert (content[0]["token"], content[0]["bytes"]) == ("token_id:5", None)


async def test_texts_of_tokens_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    from diffuse_core.adapters.openai_server import logprobs

    monkeypatch.setattr(logprobs, "MAX_WORDS", 2)
    told = await Web(FakeAnswers()).text(logprobs=1, stream=True)
    chunks = [chunk["choices"][0]["logprobs"] for chunk in told.chunks()]
    assert [c["tokens"][0] for c in chunks if c] == ["xxxxx", "xxxx", "xx", ""]
