"""What is refused: by name, with the field that is at fault."""

from __future__ import annotations

from typing import Any

import pytest

from tests.adapters.openai_server.fake_answers import FakeAnswers
from tests.adapters.openai_server.web import CHAT, MESSAGES, TEXT, Told, Web

BASE = {"model": "tiny", "messages": MESSAGES}
USER = {"role": "user"}


async def refused(fields: dict[str, Any], path: str = CHAT) -> Told:
    answers = FakeAnswers()
    base = BASE if path == CHAT else {"model": "tiny", "prompt": "Once"}
    told = await Web(answers).post(path, {**base, **fields})
    assert told.status == 400, told.body
    assert not answers.requests
    assert told.error["type"] == "invalid_request_error"
    return told


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 10**6), ("n", 0), ("n", -1), ("n", True), ("n", 1.0), ("n", "1"), ("n", [1]),
        ("n", 10**40), ("max_tokens", -5), ("max_tokens", 0), ("max_tokens", 2**40),
        ("max_completion_tokens", 1.5), ("temperature", -1), ("temperature", 2.1),
        ("temperature", True), ("temperature", "hot"), ("top_p", 2), ("top_p", -0.1),
        ("presence_penalty", 2.5), ("frequency_penalty", -3), ("seed", 2**63), ("seed", 1.5),
        ("seed", True), ("stop", ""), ("stop", ["a"] * 17), ("stop", "x" * 257),
        ("stop", 3), ("stop", {"a": 1}), ("top_k", -2), ("min_p", 1.5),
        ("repetition_penalty", 0), ("min_tokens", -1), ("ignore_eos", 1), ("stream", "yes"),
        ("stream", 1), ("logit_bias", {"x": 1}), ("logit_bias", {"01": 1}),
        ("logit_bias", {"-1": 1}), ("logit_bias", {"99999999999": 1}), ("logit_bias", [1]),
        ("logit_bias", {str(i): 1 for i in range(1025)}), ("logit_bias", {"²": 1}),
        ("logprobs", 3), ("top_logprobs", 2), ("model", ""), ("model", None), ("model", 7),
        ("model", "m" * 257), ("messages", []), ("messages", "Hi"), ("messages", None),
        ("user", 3), ("stream_options", {"include_usage": True}), ("response_format", "json"),
    ],
)  # fmt: skip
async def test_a_value_out_of_its_range_names_its_field(name: str, value: object) -> None:
    told = await refused({name: value})
    assert told.error["param"] == name, told.body
    assert told.error["code"] == "invalid_value"
    assert name in told.error["message"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("audio", {"voice": "x", "format": "mp3"}), ("modalities", ["text", "audio"]),
        ("prediction", {"type": "content", "content": "x"}), ("reasoning_effort", "high"),
        ("web_search_options", {}), ("functions", []), ("function_call", "auto"),
        ("store", True), ("service_tier", "flex"), ("verbosity", "low"), ("moderation", {}),
        ("prompt_cache_retention", "24h"), ("no_such_field", 1), ("best_of", 2),
        ("stop_token_ids", [1]), ("guided_json", {}), ("use_beam_search", False),
        ("prompt", "x"), ("x" * 5000, 1),
    ],
)  # fmt: skip
async def test_what_is_not_supported_is_refused_by_name(name: str, value: object) -> None:
    told = await refused({name: value})
    assert told.error["code"] == "unsupported_parameter"
    assert told.error["param"] == name[:80]
    assert name[:80] in told.error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"echo": True}, "echo"), ({"suffix": "x"}, "suffix"), ({"best_of": 3}, "best_of"),
        ({"prompt": [1, 2]}, "prompt"), ({"prompt": [[1], [2]]}, "prompt"),
        ({"prompt": None}, "prompt"), ({"messages": []}, "messages"), ({"tools": []}, "tools"),
    ],
)  # fmt: skip
async def test_text_completions_refuse_theirs(fields: dict[str, Any], param: str) -> None:
    told = await refused(fields, TEXT)
    assert told.error["code"] == "unsupported_parameter"
    assert told.error["param"] == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": 6}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"n": 20, "prompt": ["a", "b"]}, "n"),
        ({"prompt": ["a"] * 33}, "prompt"),
        ({"prompt": ["x" * 999_999] * 2}, "prompt"),
    ],
)
async def test_text_completions_have_ranges(fields: dict[str, Any], param: str) -> None:
    told = await refused(fields, TEXT)
    assert told.error["param"] == param, told.body


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "robot", "content": "x"}, "role"),
        ({"role": "function", "content": "x", "name": "f"}, "role"),
        ({"content": "x"}, "role"),
        ({"role": "user"}, "content"),
        ({"role": "user", "content": None}, "content"),
        ({"role": "user", "content": 3}, "content"),
        ({"role": "user", "content": [{"type": "text"}]}, "content[0].text"),
        (
            {"role": "user", "content": [{"type": "text", "text": "x", "cached": 1}]},
            "content[0].cached",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            "content[0].type",
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
            "content[0].type",
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "x", "file": {}}]},
            "content[0].file",
        ),
        ({"role": "user", "content": [{"type": "text", "text": "x"}] * 257}, "content"),
        ({"role": "user", "content": "x", "name": "B" * 257}, "name"),
        ({"role": "user", "content": "x", "parsed": {}, "reasoning": None}, "parsed"),
        ({"role": "user", "content": "x", "weight": 1}, "weight"),
        ({"role": "user", "content": "x", "tool_call_id": "c"}, "tool_call_id"),
        (
            {
                "role": "user",
                "content": "x",
                "tool_calls": [{"id": "c", "function": {"name": "f"}}],
            },
            "tool_calls",
        ),
        ({"role": "tool", "content": "x"}, "tool_call_id"),
        ({"role": "assistant", "content": "x", "refusal": "no"}, "refusal"),
        (
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]},
            "tool_calls[0].function",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {}}]},
            "tool_calls[0].type",
        ),
        (
            {
                "role": "assistant",
                "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{"}}],
            },
            "tool_calls[0].function.arguments",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}] * 129},
            "tool_calls",
        ),
        ({"role": "user", "content": "x" * 1_000_001}, "content"),
    ],
)
async def test_a_wrong_message_is_named(message: dict[str, Any], param: str) -> None:
    told = await refused({"messages": [{"role": "user", "content": "ok"}, message]})
    assert told.error["param"] == f"messages[1].{param}", told.body


async def test_bounds_of_all_messages() -> None:
    many = [{"role": "user", "content": "x"}] * 1025
    assert (await refused({"messages": many})).error["param"] == "messages"
    long = [{"role": "user", "content": "x" * 600_000}] * 2
    assert (await refused({"messages": long})).error["param"] == "messages"


@pytest.mark.parametrize("kind", ["json_schema", "grammar", "structural_tag"])
async def test_a_form_that_cannot_be_kept_is_refused(kind: str) -> None:
    told = await refused({"response_format": {"type": kind, "json_schema": {"name": "x"}}})
    assert told.error["param"] == "response_format"
    assert kind in told.error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
        ({"max_tokens": 5, "min_tokens": 6}, "min_tokens"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
        ),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        ({"diffuse": {"grace_s": -1}}, "diffuse.grace_s"),
        ({"diffuse": {"x": 1}}, "diffuse.x"),
        ({"metadata": {"a": "x" * 20_000}}, "metadata"),
    ],
)
async def test_fields_that_do_not_go_together(fields: dict[str, Any], param: str) -> None:
    assert (await refused(fields)).error["param"] == param


@pytest.mark.parametrize("missing", ["model", "messages"])
async def test_what_is_missing_is_named(missing: str) -> None:
    body = {name: value for name, value in BASE.items() if name != missing}
    told = await Web(FakeAnswers()).post(CHAT, body)
    assert (told.status, told.error["param"]) == (400, missing)
    assert told.error["code"] == "missing_required_parameter"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[]", b"7", b'"x"', b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"{}{}",
        b'{"model":"tiny","messages":[{"role":"user","content":"x"}],"temperature":NaN}',
        b'{"model":"tiny","messages":[{"role":"user","content":"x"}],"temperature":Infinity}',
        b'{"model":"tiny","messages":[{"role":"user","content":"x"}],"temperature":1e999}',
        b'{"model":"tiny","messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"model":"tiny","prompt":"\xff"}', b'{"model":"tiny","metadata":"\xff"}',
        b'{"model":"tiny","tools":[{"type":"function","function":{"name":"f","parameters":"\xff"}}]}',
        b'{"model":"tiny","tool_choice":"\xff"}', b'{"model":"tiny","tool_choice":"\\ud800"}',
        b"[" * 100_000, b'{"a":' * 100_000, b'{"metadata":' + b"[" * 100_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_what_is_no_request_is_told_so(body: bytes, path: str) -> None:
    told = await Web(FakeAnswers()).post(path, body)
    assert told.status == 400, told.body
    assert told.error["message"]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("name", ["`" * 10**6, " - at `$" * 10**5, " - at `$.x`" * 10**5])
async def test_names_of_fields_cost_no_time_of_the_server(name: str) -> None:
    assert (await refused({name: 1})).error["code"] in ("unsupported_parameter", "invalid_value")
