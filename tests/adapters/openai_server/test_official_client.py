"""The routes over real HTTP, with OpenAI's own client: tools, streams, errors, aborts."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import openai
import pytest
import uvicorn

from diffuse_core.errors import Refused, StagesLost
from tests.adapters.openai_server.fake_answers import FakeAnswers
from tests.adapters.openai_server.web import MESSAGES, Web
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ASKED: dict[str, Any] = {"model": "tiny", "messages": MESSAGES}
TOOL: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
CALLS = (
    "Let me see. ",
    '<tool_call>{"name": "weather", "arguments": {"city": "Bonn"}}</tool_call>',
)


@contextlib.asynccontextmanager
async def client_of(answers: FakeAnswers, **options: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    """A client of a server on a free port of loopback."""
    config = uvicorn.Config(
        Web(answers).app, host="127.0.0.1", port=0, log_config=None, lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    options = {"max_retries": 0, "timeout": 10, **options}
    try:
        async with openai.AsyncOpenAI(base_url=url, api_key="x", **options) as client:
            yield client
    finally:
        server.should_exit = True
        await serving


async def test_calls_of_tools_whole_and_put_together_from_a_stream() -> None:
    answers = FakeAnswers(says=CALLS, form="hermes")
    async with client_of(answers) as client:
        whole = await client.chat.completions.create(tools=[TOOL], **ASKED)
        (call,) = whole.choices[0].message.tool_calls or ()
        assert call.type == "function"
        assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Bonn"}')
        assert whole.choices[0].finish_reason == "tool_calls"
        async with client.chat.completions.stream(tools=[TOOL], **ASKED) as stream:
            streamed = await stream.get_final_completion()
        (found,) = streamed.choices[0].message.tool_calls or ()
        assert found.function.arguments == '{"city": "Bonn"}'
        assert streamed.choices[0].finish_reason == "tool_calls"
        # What the client gave back is taken as the next request's history.
        history: list[Any] = [
            *MESSAGES,
            whole.choices[0].message,
            {"role": "tool", "tool_call_id": call.id, "content": "rain"},
        ]
        await client.chat.completions.create(model="tiny", messages=history, tools=[TOOL])
    assert answers.requests[-1].messages[1].tool_calls[0].id == call.id
    assert answers.requests[-1].messages[2].content == "rain"


async def test_several_streamed_choices_with_usage_and_logprobs() -> None:
    async with client_of(FakeAnswers()) as client:
        texts, tokens, usage = ["", ""], [0, 0], None
        async for chunk in await client.chat.completions.create(
            n=2, stream=True, logprobs=True, top_logprobs=1,
            stream_options={"include_usage": True}, **ASKED,
        ):  # fmt: skip
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                if choice.logprobs is not None:
                    tokens[choice.index] += len(choice.logprobs.content or ())
    assert texts == ["Hello world"] * 2
    assert tokens == [4, 4]
    assert usage is not None
    assert usage.completion_tokens == 8


async def test_a_client_that_stops_reading_or_waits_no_longer_ends_the_generation() -> None:
    answers = FakeAnswers(pause=asyncio.Event())
    async with client_of(answers) as client:
        stream = await client.chat.completions.create(stream=True, **ASKED)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        assert answers.running == 1
        await stream.close()
        await until(lambda: answers.running == 0)
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(timeout=0.1, **ASKED)
        await until(lambda: answers.running == 0)
        assert answers.closed == 2


async def test_the_client_asks_again_after_it_was_refused_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from diffuse_core.adapters.openai_server import errors

    monkeypatch.setattr(errors, "BUSY_RETRY_S", 0)
    answers = FakeAnswers(refuse_beyond=0, refusal=Refused("busy", "busy"))
    async with client_of(answers, max_retries=1) as client:
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(**ASKED)
    assert len(answers.requests) == 2


async def test_a_defect_is_asked_for_once() -> None:
    answers = FakeAnswers(fails=ValueError(), after=-1)
    async with client_of(answers, max_retries=2) as client:
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(**ASKED)
    assert len(answers.requests) == 1


async def test_a_failure_in_the_middle_is_the_clients_error() -> None:
    async with client_of(FakeAnswers(fails=StagesLost("stage x died"), after=2)) as client:
        stream = await client.chat.completions.create(stream=True, **ASKED)
        said = ""

        async def hear() -> None:
            nonlocal said
            async for chunk in stream:
                said += chunk.choices[0].delta.content or ""

        with pytest.raises(openai.APIError) as failed:
            await hear()
    assert said == "Hello wor"
    assert failed.value.code == "stages_lost"
    assert "stage x died" in failed.value.message
