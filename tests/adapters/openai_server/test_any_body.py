"""Any body at all gives an answer or a refusal, and never a defect."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.adapters.openai_server.fake_answers import FakeAnswers
from tests.adapters.openai_server.web import CHAT, MESSAGES, TEXT, Web

SEEDS = 8
BODIES = 120
_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
WHOLE: dict[str, Any] = {
    "model": "tiny",
    "messages": [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x"}]},
    ],
    "n": 2,
    "stop": ["x"],
    "seed": 1,
    "temperature": 1,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logit_bias": {"1": 1},
    "logprobs": True,
    "top_logprobs": 2,
    "max_tokens": 4,
    "max_completion_tokens": 4,
    "stream": True,
    "stream_options": {"include_usage": True},
    "tools": [_TOOL],
    "tool_choice": "auto",
    "response_format": {"type": "json_object"},
    "user": "u",
    "metadata": {"a": "b"},
    "store": False,
    "modalities": ["text"],
    "top_k": 1,
    "min_p": 0,
    "min_tokens": 1,
    "ignore_eos": False,
    "diffuse": {"grace_s": 1, "report": True},
}
SCRAPS: list[Any] = [
    None, True, False, 0, -1, 1, 2**63, 10**30, 1.5, -0.0, 1e308, "", "x", "tiny", "\x00",
    "é" * 300, [], [[]], [None], {}, {"": None}, {"type": "text"}, [1] * 50, "auto", ["a", 1],
    {"a": {"b": [0]}},
]  # fmt: skip


def mutated(value: Any, rng: random.Random) -> Any:
    """The value with something in it changed."""
    if rng.random() < 0.25:
        return rng.choice(SCRAPS)
    if isinstance(value, dict) and value:
        copy = dict(value)
        name = rng.choice(list(copy))
        match rng.randrange(4):
            case 0:
                del copy[name]
            case 1:
                copy[rng.choice(("x", "", "type", "text", "n", name + "_"))] = rng.choice(SCRAPS)
            case _:
                copy[name] = mutated(copy[name], rng)
        return copy
    if isinstance(value, list) and value:
        copy_list = list(value)
        place = rng.randrange(len(copy_list))
        copy_list[place] = mutated(copy_list[place], rng)
        return copy_list * rng.choice((1, 1, 2))
    return rng.choice(SCRAPS)


def torn(data: bytes, rng: random.Random) -> bytes:
    """Bytes with some of them changed, cut or doubled."""
    place = rng.randrange(len(data) + 1)
    match rng.randrange(3):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + rng.randbytes(3) + data[place:]
        case _:
            return data[:place] + data[place // 2 :]


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_body_is_a_defect(seed: int) -> None:
    rng = random.Random(seed)
    answers = FakeAnswers()
    web = Web(answers)
    statuses = set()
    for _ in range(BODIES):
        whole = {name: value for name, value in WHOLE.items() if rng.random() < 0.8}
        path = rng.choice((CHAT, CHAT, TEXT))
        if path == TEXT:
            whole = {"prompt": rng.choice(("x", ["a", "b"])), **whole}
            for name in ("messages", "tools", "tool_choice", "response_format", "modalities"):
                whole.pop(name, None)
            for name in ("max_completion_tokens", "top_logprobs", "logprobs"):
                whole.pop(name, None)
        changed = whole if rng.random() < 0.1 else mutated(whole, rng)
        data = json.dumps(changed).encode()
        if rng.random() < 0.2:
            data = torn(data, rng)
        told = await web.post(path, data)
        assert told.complete
        assert told.status in (200, 400, 404), (told.body, data)
        if told.status != 200:
            assert told.error["message"]
        statuses.add(told.status)
        assert answers.running == 0
    assert {200, 400} <= statuses
