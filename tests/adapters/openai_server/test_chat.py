"""Chat completions, whole and streamed."""

from __future__ import annotations

import pytest

from diffuse_core.domain.alternatives import alternative_seed
from diffuse_core.domain.view import ChatMessage
from tests.adapters.openai_server.fake_answers import PRINT, PROMPT_TOKENS, FakeAnswers
from tests.adapters.openai_server.web import CHAT, MESSAGES, Told, Web


async def test_a_whole_answer_has_the_shape_of_the_reference() -> None:
    answers = FakeAnswers()
    told = await Web(answers).chat()
    assert told.status == 200
    answer = told.json()
    assert answer.pop("id").startswith("chatcmpl-")
    assert isinstance(answer.pop("created"), int)
    assert answer == {
        "object": "chat.completion",
        "model": "tiny",
        "system_fingerprint": PRINT,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello world", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11},
    }


@pytest.mark.parametrize("stream", [False, True])
async def test_who_asks_for_a_variant_is_told_its_whole_name(stream: bool) -> None:
    told = await Web(FakeAnswers()).chat(model=f"tiny@{PRINT[:8]}", stream=stream)
    answers = told.chunks() if stream else [told.json()]
    assert {answer["model"] for answer in answers} == {f"tiny@{PRINT}"}


async def test_what_is_asked_for_without_a_word_is_what_the_api_promises() -> None:
    answers = FakeAnswers()
    await Web(answers).chat()
    (request,) = answers.requests
    assert request.model == f"tiny@{PRINT}"
    assert request.messages == (ChatMessage("user", "Hi"),)
    assert (request.sampling.temperature, request.sampling.top_p) == (1.0, 1.0)
    assert request.max_tokens == 1024
    await Web(answers).chat()
    assert answers.requests[1].sampling.seed != request.sampling.seed


async def test_every_setting_reaches_the_generation() -> None:
    answers = FakeAnswers()
    told = await Web(answers).chat(
        temperature=0.5, top_p=0.9, presence_penalty=-1, frequency_penalty=1.5, seed=-1, stop="x",
        logit_bias={"3": -100, "0": 1.5}, max_completion_tokens=9, max_tokens=9, top_k=-1,
        min_p=0.1, repetition_penalty=1.1, min_tokens=2, ignore_eos=True, logprobs=True,
        diffuse={"grace_s": 3}, user="me", metadata={"a": "b"}, store=False, n=None,
        service_tier="auto", response_format={"type": "text"}, modalities=["text"],
        reasoning_effort=None, tool_choice="auto", parallel_tool_calls=True,
    )  # fmt: skip
    assert told.status == 200, told.body
    (request,) = answers.requests
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 0)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (-1.0, 1.5)
    assert sampling.seed == 2**63 - 1
    assert sampling.logit_bias == ((3, -100.0), (0, 1.5))
    assert (sampling.min_p, sampling.repetition_penalty) == (0.1, 1.1)
    assert (request.stop, request.max_tokens, request.min_tokens) == (("x",), 9, 2)
    assert (request.ignore_eos, request.logprobs, request.grace_s) == (True, 0, 3.0)


async def test_top_p_of_nothing_keeps_the_likeliest_token() -> None:
    answers = FakeAnswers()
    await Web(answers).chat(top_p=0)
    assert 0 < answers.requests[0].sampling.top_p < 1e-6


async def test_messages_of_every_role_and_parts() -> None:
    answers = FakeAnswers()
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    told = await Web(answers).chat(
        messages=[
            {"role": "developer", "content": "Be brief"},
            {"role": "user", "content": [{"type": "text", "text": part} for part in "ab"]},
            {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None,
             "annotations": [], "audio": None, "function_call": None},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ]
    )  # fmt: skip
    assert told.status == 200, told.body
    system, user, assistant, tool = answers.requests[0].messages
    assert system == ChatMessage("system", "Be brief")
    assert user == ChatMessage("user", "a\nb")
    assert assistant.tool_calls[0].arguments == '{"a":1}'
    assert (tool.role, tool.content, tool.tool_call_id) == ("tool", "2", "c1")


async def test_several_choices_have_seeds_of_their_own_and_the_prompt_counts_once() -> None:
    answers = FakeAnswers()
    told = await Web(answers).chat(n=6, seed=5)
    answer = told.json()
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    assert sorted(request.sampling.seed for request in answers.requests) == sorted(
        alternative_seed(5, index) for index in range(6)
    )
    assert answer["usage"] == {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": 24,
        "total_tokens": PROMPT_TOKENS + 24,
    }
    assert 1 < answers.most <= 4


async def test_a_stream_has_role_text_reason_and_an_end() -> None:
    told = await Web(FakeAnswers()).chat(stream=True)
    assert told.headers["content-type"].startswith("text/event-stream")
    assert told.headers["cache-control"] == "no-cache"
    assert told.headers["x-accel-buffering"] == "no"
    assert told.lines()[-1] == "data: [DONE]"
    chunks = told.chunks()
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    assert all("usage" not in chunk for chunk in chunks)
    first, *middle, last = [chunk["choices"][0] for chunk in chunks]
    assert first["delta"] == {"role": "assistant", "content": ""}
    assert [each["delta"] for each in middle] == [
        {"content": "Hello"},
        {"content": " wor"},
        {"content": "ld"},
    ]
    assert (last["delta"], last["finish_reason"]) == ({}, "stop")
    assert all(each["finish_reason"] is None for each in (first, *middle))


async def test_a_stream_tells_the_usage_last_where_it_is_asked_for() -> None:
    told = await Web(FakeAnswers()).chat(stream=True, stream_options={"include_usage": True}, n=2)
    *chunks, last = told.chunks()
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 7, "completion_tokens": 8, "total_tokens": 15}


async def test_streamed_choices_are_interleaved_and_each_is_complete() -> None:
    told = await Web(FakeAnswers()).chat(stream=True, n=3, seed=1)
    members = [chunk["choices"][0] for chunk in told.chunks()]
    order = [member["index"] for member in members]
    assert sorted(set(order)) == [0, 1, 2]
    assert order != sorted(order)
    for index in range(3):
        own = [member for member in members if member["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert "".join(m["delta"].get("content", "") for m in own) == "Hello world"
        assert own[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [False, True])
async def test_characters_of_many_bytes_stay_whole(stream: bool) -> None:
    answers = FakeAnswers(says=("é", "👩‍🚀", "漢\n\n字"))
    told = await Web(answers).chat(stream=stream)
    if stream:
        deltas = [chunk["choices"][0]["delta"] for chunk in told.chunks()]
        assert "".join(d.get("content", "") for d in deltas) == "é👩‍🚀漢\n\n字"
    else:
        assert told.json()["choices"][0]["message"]["content"] == "é👩‍🚀漢\n\n字"


async def test_events_are_lines_for_clients_that_split_at_more_than_line_feeds() -> None:
    said = "a\u2028b\u2029c\x85d\x0be\rf\ng"
    told = await Web(FakeAnswers(says=(said,))).chat(stream=True)
    lines = [line for line in told.body.decode().splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    deltas = [chunk["choices"][0]["delta"] for chunk in told.chunks()]
    assert "".join(d.get("content", "") for d in deltas) == said


async def test_json_is_asked_for_in_the_system_message() -> None:
    answers = FakeAnswers()
    web = Web(answers)
    await web.chat(response_format={"type": "json_object"})
    system, user = answers.requests[0].messages
    assert system.role == "system"
    assert "JSON" in system.content
    assert user == ChatMessage("user", "Hi")
    own = [{"role": "system", "content": "You are terse."}, *MESSAGES]
    await web.chat(response_format={"type": "json_object"}, messages=own)
    assert len(answers.requests[1].messages) == 2
    assert answers.requests[1].messages[0].content.startswith("You are terse.\n\n")
    assert "JSON" in answers.requests[1].messages[0].content


async def test_a_report_comes_only_where_it_is_asked_for() -> None:
    web = Web(FakeAnswers())
    told = await web.chat(seed=3, diffuse={"report": True})
    (choice,) = told.json()["diffuse"]["choices"]
    assert choice["seed"] == 3
    assert choice["events"] == ["a stage was replaced"]
    assert [step["slice"] for step in choice["route"]] == [[0, 4], [4, 10]]
    streamed = await web.chat(seed=3, stream=True, diffuse={"report": True})
    *chunks, last = streamed.chunks()
    assert last["diffuse"]["choices"][0]["seed"] == 3
    assert not any("diffuse" in chunk for chunk in chunks)


async def test_length_is_told_as_the_reason() -> None:
    told = await Web(FakeAnswers(finish="length")).chat()
    assert told.json()["choices"][0]["finish_reason"] == "length"


async def test_a_body_in_any_order_of_fields_and_with_a_name_in_other_letters() -> None:
    body = b'{"messages":[{"content":"x","role":"user"}],"model":"TINY"}'
    told = await Web(FakeAnswers()).post(CHAT, body)
    assert told.json()["model"] == "tiny"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_servers_log_gets_the_counts(stream: bool) -> None:
    told = Told()
    body = {"model": "tiny", "messages": MESSAGES, "stream": stream, "n": 2}
    await Web(FakeAnswers()).post(CHAT, body, told)
    assert told.state["tokens"] == (PROMPT_TOKENS, 8)
