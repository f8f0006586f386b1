"""Tools of a request reach the model through its template, wherever that lies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.tools import Tool, ToolCall
from diffuse_core.domain.view import ChatMessage, GenerateRequest
from diffuse_core.errors import UsageError
from tests.services.tiny_model import END, TinyModel

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.cluster import Cluster

TOOLS = (Tool(name="w1", description="w2", parameters='{"type": "object"}'),)
CALLED = ChatMessage("assistant", "", tool_calls=(ToolCall(id="1", name="w1"),))
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool.function.name }} {{ tool.function.description }} "
    "<tool_call> {% endfor %}"
    "{% for m in messages %}{{ m.content }} "
    "{% for call in m.tool_calls or [] %}{{ call.function.name }} {% endfor %}{% endfor %}"
    "<|begin|>"
)


def asked(*messages: ChatMessage, tools: tuple[Tool, ...] = ()) -> GenerateRequest:
    return GenerateRequest(model="tiny", messages=messages, tools=tools, max_tokens=2)


async def test_a_model_that_knows_no_tools_says_so(cluster: Cluster) -> None:
    await cluster.host()
    client = await cluster.client()
    hello = ChatMessage("user", "w5")
    assert await client.tool_format("tiny") is None
    for request in (asked(hello, tools=TOOLS), asked(hello, CALLED)):
        with pytest.raises(UsageError, match="knows no tools"):
            await client.whole(request)
    raw = GenerateRequest(model="tiny", raw="w5", tools=TOOLS)
    with pytest.raises(UsageError, match="raw prompt has no tools"):
        await client.whole(raw)
    assert (await client.whole(asked(hello)))[2].usage.completion_tokens == 2


async def test_the_model_is_told_of_tools_and_calls(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "handy"
    path.mkdir()
    for file in cluster.model.path.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    config = {"eos_token": "<|end|>", "chat_template": TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    cluster.asked = str(path)
    await cluster.host()
    client = await cluster.client()
    request = asked(ChatMessage("user", "w5"), CALLED, tools=TOOLS)
    request = GenerateRequest(model="handy", messages=request.messages, tools=TOOLS, max_tokens=2)
    _, tokens, finished = await client.whole(request)
    prompt = (1, 2, 0, 5, 1, 96)  # `<tool_call>` is no word of this model.
    assert finished.usage.prompt_tokens == len(prompt)
    handy = TinyModel(path, cluster.model.reference, cluster.model.stop_ids)
    assert tokens == handy.says(prompt, 2)
    assert await client.tool_format("handy") == "hermes"
    assert await client.token_bytes("handy", (END, 2**20)) == {END: b"<|end|>", 2**20: None}
