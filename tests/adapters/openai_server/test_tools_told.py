"""Tools in requests, and calls in answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from diffuse_core.errors import ToolsUnknown
from tests.adapters.openai_server.fake_answers import FakeAnswers
from tests.adapters.openai_server.web import Web

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "Of a city", "parameters": SCHEMA}
TOOL: dict[str, Any] = {"type": "function", "function": FUNCTION}
LONG = {"description": "x" * 300_000}
CALLS = (
    "Well. ",
    '<tool_call>\n{"name": "weather", ',
    '"arguments": {"city": "Paris"}}\n</tool_call>',
    '\n<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>',
)


async def test_tools_reach_the_template() -> None:
    answers = FakeAnswers()
    told = await Web(answers).chat(tools=[TOOL], tool_choice="auto")
    assert told.status == 200, told.body
    (tool,) = answers.requests[0].tools
    assert (tool.name, tool.description) == ("weather", "Of a city")
    assert json.loads(tool.parameters) == SCHEMA


async def test_with_tool_choice_none_the_model_is_told_of_no_tools() -> None:
    answers = FakeAnswers(says=CALLS, form="hermes")
    told = await Web(answers).chat(tools=[TOOL], tool_choice="none")
    assert answers.requests[0].tools == ()
    (choice,) = told.json()["choices"]
    assert "<tool_call>" in choice["message"]["content"]
    assert choice["finish_reason"] == "stop"


async def test_calls_are_told_as_calls() -> None:
    told = await Web(FakeAnswers(says=CALLS, form="hermes")).chat(tools=[TOOL])
    (choice,) = told.json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"].strip() == "Well."
    calls = choice["message"]["tool_calls"]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [
        {"city": "Paris"},
        {"city": "Köln"},
    ]
    assert {call["type"] for call in calls} == {"function"}
    assert {call["function"]["name"] for call in calls} == {"weather"}
    assert len({call["id"] for call in calls}) == 2


async def test_an_answer_of_calls_alone_has_no_content() -> None:
    told = await Web(FakeAnswers(says=CALLS[1:], form="hermes")).chat(tools=[TOOL])
    assert told.json()["choices"][0]["message"]["content"] is None


async def test_streamed_calls_come_whole_and_in_order() -> None:
    told = await Web(FakeAnswers(says=CALLS, form="hermes")).chat(
        tools=[TOOL], stream=True, logprobs=True
    )
    members = [chunk["choices"][0] for chunk in told.chunks()]
    calls = [call for m in members for call in m["delta"].get("tool_calls", ())]
    assert [call["index"] for call in calls] == [0, 1]
    assert json.loads(calls[1]["function"]["arguments"]) == {"city": "Köln"}
    assert members[-1]["finish_reason"] == "tool_calls"
    text = "".join(m["delta"].get("content") or "" for m in members)
    assert text.strip() == "Well."
    told_tokens = [entry for m in members if m["logprobs"] for entry in m["logprobs"]["content"]]
    assert len(told_tokens) == len(CALLS) + 1


@pytest.mark.parametrize("stream", [False, True])
async def test_without_parallel_calls_only_the_first_is_told(stream: bool) -> None:
    web = Web(FakeAnswers(says=CALLS, form="hermes"))
    told = await web.chat(tools=[TOOL], parallel_tool_calls=False, stream=stream)
    if stream:
        deltas = [chunk["choices"][0]["delta"] for chunk in told.chunks()]
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    else:
        calls = told.json()["choices"][0]["message"]["tool_calls"]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"city": "Paris"}]
    assert '"finish_reason":"tool_calls"' in told.body.decode()


@pytest.mark.parametrize("stream", [False, True])
async def test_what_only_begins_as_a_call_is_text(stream: bool) -> None:
    half = '<tool_call>\n{"name": "wea'
    told = await Web(FakeAnswers(says=("A ", half), form="hermes")).chat(
        tools=[TOOL], stream=stream
    )
    if stream:
        deltas = [chunk["choices"][0]["delta"] for chunk in told.chunks()]
        text = "".join(delta.get("content", "") for delta in deltas)
    else:
        text = told.json()["choices"][0]["message"]["content"]
    assert text == "A " + half


async def test_a_model_of_no_known_form_gives_its_text() -> None:
    told = await Web(FakeAnswers(says=CALLS, form=None)).chat(tools=[TOOL])
    (choice,) = told.json()["choices"]
    assert choice["finish_reason"] == "stop"
    assert "<tool_call>" in choice["message"]["content"]


async def test_a_model_that_knows_no_tools_says_so() -> None:
    answers = FakeAnswers(fails=ToolsUnknown("the model's chat template knows no tools"), after=-1)
    told = await Web(answers).chat(tools=[TOOL])
    assert told.status == 400
    assert "knows no tools" in told.error["message"]
    assert told.error["param"] == "tools"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "weather"}}}, "tool_choice"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": [TOOL] * 129}, "tools"),
        (
            {"tools": [{"type": "function", "function": {**FUNCTION, "strict": True}}]},
            "tools[0].function.strict",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "no spaces"}}]},
            "tools[0].function.name",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": [1]}}]},
            "tools[0].function.parameters",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": LONG}}]},
            "tools[0].function.parameters",
        ),
        ({"parallel_tool_calls": 0}, "parallel_tool_calls"),
    ],
)
async def test_what_cannot_be_promised_is_refused(fields: dict[str, Any], param: str) -> None:
    told = await Web(FakeAnswers()).chat(**{"tools": [TOOL], **fields})
    assert (told.status, told.error["param"]) == (400, param), told.body
