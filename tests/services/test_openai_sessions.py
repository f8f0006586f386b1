"""The OpenAI API on a real network: clients that leave free every Stage, and losses are told."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from diffuse_core.adapters.openai_server import ApiLimits
from tests.adapters.openai_server.web import CHAT, TEXT, Told, Web
from tests.services.tiny_model import ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection

    from diffuse_core.domain.tools import ToolFormat
    from diffuse_core.domain.view import GenerateEvent, GenerateRequest, NetworkView
    from diffuse_core.services.client import ClientService
    from diffuse_core.services.observer import Observer
    from tests.services.cluster import Cluster
    from tests.services.tiny_model import TinyModel

GONE_S = 1.0
LONG = {"max_tokens": 100, "ignore_eos": True}


class Looking:
    """Answers over one look at the network."""

    def __init__(self, observer: Observer, client: ClientService) -> None:
        self._observer = observer
        self._client = client

    async def view(self) -> NetworkView:
        return self._observer.view()

    def generate(self, request: GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
        return self._client.generate(request)

    async def token_texts(self, model: str, tokens: Collection[int]) -> dict[int, str]:
        return await self._client.token_texts(model, tokens)

    async def token_bytes(self, model: str, tokens: Collection[int]) -> dict[int, bytes | None]:
        return await self._client.token_bytes(model, tokens)

    async def tool_format(self, model: str) -> ToolFormat | None:
        return await self._client.tool_format(model)


async def web_on(cluster: Cluster, limits: ApiLimits | None = None) -> Web:
    observer = await cluster.observer()
    return Web(Looking(observer, await cluster.client(observer)), limits)


def text_body(**fields: Any) -> bytes:
    body = {"model": "tiny", "prompt": words(13), "temperature": 0, **fields}
    return json.dumps(body).encode()


async def test_an_answer_is_what_the_model_says(split: Callable, tiny: TinyModel) -> None:
    web = await web_on(await split(3))
    told = await web.post(TEXT, text_body(max_tokens=12, ignore_eos=True, logprobs=2, n=2))
    answer = told.json()
    expected = " ".join(f"w{token}" for token in tiny.says(ids(13), 12, ignore_eos=True))
    for choice in answer["choices"]:
        assert choice["text"].strip() == expected
        assert len(choice["logprobs"]["tokens"]) == 12
        assert choice["finish_reason"] == "length"
    assert answer["usage"] == {"prompt_tokens": 13, "completion_tokens": 24, "total_tokens": 37}


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"stream": True}, {}, {"n": 3, "seed": 1, "temperature": 1}])
async def test_no_session_is_left_a_second_after_the_client_left(
    split: Callable, fields: dict[str, Any]
) -> None:
    cluster = await split(3, sockets=True)
    web = await web_on(cluster)
    stages = [host.service.stage for host in cluster.hosts]
    leave, told = asyncio.Event(), Told()
    asking = asyncio.create_task(
        web.ask("POST", TEXT, text_body(**LONG, **fields), told, leave=leave)
    )
    await until(lambda: all(stage.kv_used for stage in stages))
    leave.set()
    async with asyncio.timeout(GONE_S):
        await asking
        await until(lambda: not any(stage.sessions or stage.kv_used for stage in stages))
    assert not told.complete
    for host in cluster.hosts:
        await host.idle()


@pytest.mark.slow
async def test_a_stage_that_nobody_replaces_is_told_in_the_stream(split: Callable) -> None:
    cluster = await split(3)
    web = await web_on(cluster, ApiLimits(heartbeat_s=0.05))
    told = Told()
    body = text_body(**LONG, stream=True, diffuse={"grace_s": 0.3})
    asking = asyncio.create_task(web.ask("POST", TEXT, body, told))
    await until(lambda: len(told.parts) > 2)
    cluster.crash(cluster.hosts[1])
    await asking
    assert told.status == 200
    assert told.chunks()[-1]["error"]["code"] in ("stages_lost", "model_incomplete")
    assert "[DONE]" not in told.body.decode()


async def test_a_prompt_that_does_not_fit_is_told_by_its_code(split: Callable) -> None:
    web = await web_on(await split(2))
    messages = [{"role": "user", "content": words(400)}]
    told = await web.post(CHAT, {"model": "tiny", "messages": messages})
    assert (told.status, told.error["code"]) == (400, "context_length_exceeded")


async def test_a_model_without_tools_in_its_template_says_so(split: Callable) -> None:
    web = await web_on(await split(2))
    tool = {"type": "function", "function": {"name": "f"}}
    told = await web.post(
        CHAT,
        {"model": "tiny", "messages": [{"role": "user", "content": "w1"}], "tools": [tool]},
    )
    assert told.status == 400, told.body
    assert "tool" in told.error["message"]
    assert told.error["param"] == "tools"
