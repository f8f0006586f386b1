"""What programs send without a thought: their libraries' own members, nulls, names."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import ParsedChatCompletionMessage

from diffuse_core.adapters.openai_server.nulls import without_nulls
from tests.adapters.openai_server.fake_answers import FakeAnswers
from tests.adapters.openai_server.web import CHAT, MESSAGES, Web

FUNCTION = {"name": "f", "arguments": "{}"}
CALL: dict[str, Any] = {"id": "c", "type": "function", "function": FUNCTION}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "2", "name": "f"}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "x", "reasoning_content": None, "reasoning": None},
        {"role": "assistant", "content": [{"type": "text", "text": "x", "annotations": None}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL | {"index": 0}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [CALL | {"function": FUNCTION | {"parsed_arguments": None}}],
        },
    ],
)
async def test_messages_as_libraries_keep_them_are_taken(message: dict[str, Any]) -> None:
    told = await Web(FakeAnswers()).chat(messages=[*MESSAGES, message, RESULT])
    assert told.status == 200, told.body


async def test_messages_that_the_official_client_parsed_are_taken() -> None:
    web = Web(FakeAnswers())
    said = (await web.chat()).json()["choices"][0]["message"]
    kept = ParsedChatCompletionMessage[None].model_validate(said).model_dump()
    assert kept["parsed"] is None
    told = await web.chat(messages=[*MESSAGES, kept, *MESSAGES])
    assert told.status == 200, told.body


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_what_a_model_thought_reaches_the_template(name: str) -> None:
    answers = FakeAnswers()
    message = {"role": "assistant", "content": "4", name: "2 and 2"}
    told = await Web(answers).chat(messages=[*MESSAGES, message, *MESSAGES])
    assert told.status == 200, told.body
    assert [each.reasoning for each in answers.requests[0].messages] == ["", "2 and 2", ""]
    told = await Web(answers).chat(messages=[{"role": "user", "content": "x", name: "y"}])
    assert (told.status, told.error["param"]) == (400, f"messages[0].{name}")


async def test_null_is_taken_for_any_field() -> None:
    told = await Web(FakeAnswers()).chat(
        extra_body=None, tools=[{"type": "function", "x": None, "function": {"name": "f"}}],
        stream=True, stream_options={"include_usage": None, "y": None}, top_logprobs=0,
        logit_bias=None, parallel_tool_calls=False,
    )  # fmt: skip
    assert told.status == 200, told.body


async def test_null_is_none_where_it_may_mean_something() -> None:
    schema = {"type": "object", "properties": {"a": {"default": None}}}
    answers = FakeAnswers()
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    told = await Web(answers).chat(tools=[tool], extra_body=None)
    assert told.status == 200, told.body
    assert '"default"' in answers.requests[0].tools[0].parameters
    told = await Web(answers).chat(logit_bias={"1": None}, extra_body=None)
    assert told.error["param"] == "logit_bias[...]"


async def test_a_null_beside_a_field_that_nobody_knows_does_not_hide_it() -> None:
    told = await Web(FakeAnswers()).chat(extra_body=None, no_such_field=1)
    assert (told.status, told.error["param"]) == (400, "no_such_field")


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
async def test_names_of_who_speaks_reach_the_template(role: str) -> None:
    answers = FakeAnswers()
    message = {"role": role, "content": "x", "name": "Bob"}
    if role == "tool":
        message["tool_call_id"] = "c"
    told = await Web(answers).chat(messages=[message, *MESSAGES])
    assert told.status == 200, told.body
    assert [each.name for each in answers.requests[0].messages] == ["Bob", ""]


async def test_numbers_of_any_size_are_left_as_they_are() -> None:
    told = await Web(FakeAnswers()).post(
        CHAT, b'{"model": "tiny", "messages": [{"role": "user", "content": "x"}], "y": null, '
        b'"seed": ' + b"9" * 40 + b"}",
    )  # fmt: skip
    assert told.error["param"] == "seed"
    assert without_nulls(b' {"a": 1e400, "b": null, "c": [null]}') == b'{"a":1e400,"c":[null]}'
