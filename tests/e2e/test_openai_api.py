"""The served API as programs use it: OpenAI's own client, and one by others, on three hosts."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import openai
import pytest
from huggingface_hub import InferenceClient

from tests.e2e.processes import ASK_S, Processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MODEL = "smollm2-135m-instruct"
LAYERS = 30
QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
STORY: list[Any] = [{"role": "user", "content": "Tell a very long story about the sea."}]
TOOL = {"type": "function", "function": {"name": "f"}}
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 32}
GONE_S = 3.0
"""Sessions are told of in a picture of the network that is taken anew by each command."""


@pytest.fixture(scope="module")
def network(
    tmp_path_factory: pytest.TempPathFactory, demo_gguf: Path
) -> Iterator[tuple[Processes, str, str]]:
    """Three hosts of a third each, and a server: its URL and its key."""
    assert demo_gguf.is_file()
    with Processes(tmp_path_factory.mktemp("network")) as processes:
        processes.start_sentinel()
        for number in range(3):
            processes.start_host(f"host-{number}", "demo", "--max-layers", "10")
        processes.until_servable(hosts=3)
        processes.start(
            "serve", "serve", "--bootstrap", processes.sentinel, "--port", "0", "--json"
        )
        yield processes, *_served(processes)


def _served(processes: Processes) -> tuple[str, str]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for line in processes.log("serve").splitlines():
            if line.startswith("{") and "url" in (told := json.loads(line)):
                key = processes.command(
                    "serve", "--print-key", "--state-dir", str(processes.directory / "serve")
                )
                return told["url"], key.stdout.strip()
        time.sleep(0.1)
    raise AssertionError(processes.log("serve"))


@pytest.fixture
def client(network: tuple[Processes, str, str]) -> Iterator[openai.OpenAI]:
    _, url, key = network
    with openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=60) as client:
        yield client


def test_models_are_listed_and_one_is_got(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    model = client.models.retrieve(MODEL)
    assert model.owned_by == "diffuse"
    assert (model.model_extra or {})["layers"] == LAYERS


def test_an_answer_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(messages=QUESTION, **GREEDY)
    text = whole.choices[0].message.content
    assert text is not None
    assert "Paris" in text
    assert whole.choices[0].finish_reason == "stop"
    assert whole._request_id
    with client.chat.completions.create(
        messages=QUESTION, stream=True, stream_options={"include_usage": True}, **GREEDY
    ) as stream:
        chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage == whole.usage
    assert {chunk.system_fingerprint for chunk in chunks} == {whole.system_fingerprint}


def test_text_completions_and_their_logprobs(client: openai.OpenAI) -> None:
    done = client.completions.create(
        prompt=["The capital of France is", "Water boils at"], logprobs=3, **GREEDY
    )
    assert "Paris" in done.choices[0].text
    for choice in done.choices:
        logprobs = choice.logprobs
        assert logprobs is not None
        assert logprobs.tokens is not None
        assert len(logprobs.tokens) == len(logprobs.text_offset or ())
        assert all(len(each) in (3, 4) for each in logprobs.top_logprobs or ())
    pieces = client.completions.create(prompt="The capital of France is", stream=True, **GREEDY)
    assert "".join(piece.choices[0].text for piece in pieces) == done.choices[0].text


def test_a_seed_is_heeded_and_the_first_of_several_is_the_one_alone(
    client: openai.OpenAI,
) -> None:
    asked: dict[str, Any] = {"model": MODEL, "messages": STORY, "max_tokens": 16, "seed": -7}
    alone = client.chat.completions.create(**asked)
    three = client.chat.completions.create(n=3, **asked)
    texts = [choice.message.content for choice in three.choices]
    assert texts[0] == alone.choices[0].message.content
    assert len(set(texts)) == 3
    streamed = ["", "", ""]
    for chunk in client.chat.completions.create(n=3, stream=True, **asked):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts


def test_logprobs_of_a_chat_are_as_many_as_its_tokens(client: openai.OpenAI) -> None:
    done = client.chat.completions.create(
        messages=QUESTION, logprobs=True, top_logprobs=2, **GREEDY
    )
    logprobs = done.choices[0].logprobs
    assert logprobs is not None
    content = logprobs.content
    assert content is not None
    assert done.usage is not None
    assert len(content) == done.usage.completion_tokens
    assert all(entry.logprob <= entry.top_logprobs[0].logprob for entry in content)
    text = b"".join(bytes(entry.bytes or ()) for entry in content[:-1]).decode()
    assert text == done.choices[0].message.content


@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({"model": "nope"}, openai.NotFoundError, "model"),
        ({"temperature": -1}, openai.BadRequestError, "temperature"),
        ({"n": 10**6}, openai.BadRequestError, "n"),
        ({"reasoning_effort": "high"}, openai.BadRequestError, "reasoning_effort"),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            openai.BadRequestError,
            "tools",
        ),
    ],
)
def test_errors_are_those_of_the_client(
    client: openai.OpenAI, fields: dict[str, Any], kind: type[openai.APIStatusError], param: str
) -> None:
    with pytest.raises(kind) as refused:
        client.chat.completions.create(**{**GREEDY, "messages": QUESTION, **fields})
    assert refused.value.param == param
    assert refused.value.code


def test_a_wrong_key_is_refused(network: tuple[Processes, str, str]) -> None:
    with (
        openai.OpenAI(base_url=network[1], api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()


async def test_the_async_client_and_leaving_in_the_middle(
    network: tuple[Processes, str, str],
) -> None:
    processes, url, key = network
    async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
        asked = [client.chat.completions.create(messages=QUESTION, **GREEDY) for _ in range(4)]
        answers = await asyncio.gather(*asked)
        assert len({answer.choices[0].message.content for answer in answers}) == 1
        long = {"model": MODEL, "messages": STORY, "extra_body": {"ignore_eos": True}}
        stream = await client.chat.completions.create(stream=True, max_tokens=2000, **long)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        assert await asyncio.to_thread(_sessions, processes) > 0
        await stream.close()
        await _none_left(processes)
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(max_tokens=2000, timeout=1.0, **long)
        await _none_left(processes)


def _sessions(processes: Processes) -> int:
    """Sessions that the hosts say they have."""
    count = 0
    for number in range(3):
        state = str(processes.directory / f"host-{number}")
        done = processes.command("status", "--json", "--state-dir", state)
        count += json.loads(done.stdout)["telemetry"]["sessions"]
    return count


async def _none_left(processes: Processes) -> None:
    deadline = time.monotonic() + GONE_S
    while await asyncio.to_thread(_sessions, processes):
        assert time.monotonic() < deadline, "sessions of a client that left are still there"
        await asyncio.sleep(ASK_S)


def test_a_client_by_others(network: tuple[Processes, str, str]) -> None:
    _, url, key = network
    client = InferenceClient(base_url=url, api_key=key, timeout=60)
    asked: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 32}
    whole = client.chat_completion(QUESTION, **asked)
    text = whole.choices[0].message.content
    assert text is not None
    assert "Paris" in text
    pieces = client.chat_completion(QUESTION, stream=True, **asked)
    assert "".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == text


def test_prompts_are_in_no_log(network: tuple[Processes, str, str], client: openai.OpenAI) -> None:
    canary = "the canary sings at dawn"
    messages: list[Any] = [{"role": "user", "content": canary}]
    client.chat.completions.create(**{**GREEDY, "messages": messages, "max_tokens": 4})
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**{**GREEDY, "messages": messages, "top_p": 9})
    processes = network[0]
    for name in processes.running:
        assert canary not in processes.log(name)
    assert "chat/completions" in processes.log("serve")
