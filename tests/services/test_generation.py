"""Generations over networks of full nodes say what the whole model says, token for token."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import ChatMessage, Finished, GenerateRequest, RouteChosen, TextDelta
from diffuse_core.errors import UsageError
from diffuse_core.model_ports import StageStep
from diffuse_core.services import session_terms, stage_run
from tests.greedy import GREEDY, last_token
from tests.services.tiny_model import BEGIN, CONTEXT, END, LAYERS, ids, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.services.cluster import Cluster
    from tests.services.tiny_model import TinyModel

LENGTHS = (1, 2, 13, 50)


def ask(tokens: int, count: int = 12, salt: int = 0, **options: object) -> GenerateRequest:
    return GenerateRequest(
        model="tiny", raw=words(tokens, salt), max_tokens=count, **{"ignore_eos": True, **options}
    )


def unsplit(tiny: TinyModel, prompt: Sequence[int], count: int) -> tuple[int, ...]:
    """The same executor with the whole model, without any network."""
    whole = Slice(0, LAYERS)
    executor = load_slice(DirectorySource(tiny.path), whole, "fp32", lambda _: None)
    executor.open(b"s" * 16, whole, CONTEXT)
    said: list[int] = []
    fed, position = tuple(prompt), 0
    for _ in range(count):
        step = StageStep(
            session=b"s" * 16, part=whole, position=position, tokens=fed, chooser=GREEDY
        )
        said.append(last_token(executor.run([step])[0]))
        position, fed = position + len(fed), (said[-1],)
    return tuple(said)


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
async def test_any_split_says_what_transformers_says(
    split: Callable, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch, stages: int
) -> None:
    monkeypatch.setattr(stage_run, "PREFILL_ROWS", 8)
    monkeypatch.setattr(session_terms, "MAX_ROWS", 24)
    cluster = await split(stages)
    watching, hosting = await cluster.client(), cluster.hosts[-1].client
    for length in LENGTHS:
        wanted = tiny.says(ids(length), 8, ignore_eos=True)
        assert len(set(wanted)) > 3
        assert wanted == unsplit(tiny, ids(length), 8)
        for client in (watching, hosting):
            text, tokens, finished = await client.whole(ask(length, 8))
            assert tokens == wanted
            assert text.split() == [f"w{token}" for token in tokens if token < BEGIN]
            assert finished.finish_reason == "length"
            assert (finished.usage.prompt_tokens, finished.usage.completion_tokens) == (length, 8)
            assert len(finished.route) == stages
            assert next(step.slice.start for step in finished.route) == 0
            assert finished.route[-1].slice.end == LAYERS
    vias = [step.via for step in finished.route]
    assert vias.count("local") == 1
    for host in cluster.hosts:
        await host.idle()


async def test_the_same_over_sockets(split: Callable, tiny: TinyModel) -> None:
    cluster = await split(3, sockets=True)
    for client in (await cluster.client(), cluster.hosts[0].client):
        _, tokens, finished = await client.whole(ask(13, 24))
        assert tokens == tiny.says(ids(13), 24, ignore_eos=True)
        assert len(finished.route) == 3
    for host in cluster.hosts:
        await host.idle()


async def test_sampled_tokens_do_not_depend_on_the_route(
    split: Callable, cluster: Cluster, tiny: TinyModel
) -> None:
    await cluster.host()
    whole = await cluster.client()
    parts = await (await split(3)).client()
    heard = set()
    for seed in (1, 2, 3):
        request = ask(7, 20, sampling=SamplingParams(temperature=1.5, top_p=0.95, seed=seed))
        _, tokens, finished = await parts.whole(request)
        assert len(finished.route) == 3
        assert (await whole.whole(request))[1] == tokens
        heard.add(tokens)
    assert len(heard) == 3
    assert tiny.says(ids(7), 20, ignore_eos=True) not in heard


async def test_an_end_id_of_the_model_ends_the_answer(split: Callable, tiny: TinyModel) -> None:
    cluster = await split(2)
    client = await cluster.client()
    said = tiny.says(ids(5), 24)
    assert said[-1] == tiny.stop_ids[1]
    assert 6 < len(said) < 24
    text, tokens, finished = await client.whole(ask(5, 24, ignore_eos=False))
    assert tokens == said
    assert finished.finish_reason == "stop"
    assert finished.usage.completion_tokens == len(said)
    assert f"w{said[-1]}" not in text.split()
    _, tokens, finished = await client.whole(ask(5, 24))
    assert tokens == tiny.says(ids(5), 24, ignore_eos=True)
    assert finished.finish_reason == "length"


async def test_max_tokens_of_one(split: Callable, tiny: TinyModel) -> None:
    cluster = await split(2)
    _, tokens, finished = await (await cluster.client()).whole(ask(5, 1))
    assert tokens == tiny.says(ids(5), 1, ignore_eos=True)
    assert finished.finish_reason == "length"
    for host in cluster.hosts:
        await host.idle()


async def test_a_stop_string_ends_the_text_before_it(split: Callable, tiny: TinyModel) -> None:
    cluster = await split(2)
    client = await cluster.client()
    said = tiny.says(ids(13), 24, ignore_eos=True)
    assert max(said[:9]) < BEGIN
    # Over two tokens, so that the first must be held back.
    stop = f"w{said[7]} w{said[8]}"
    text, tokens, finished = await client.whole(ask(13, 24, stop=("w0w0", stop)))
    assert text == " ".join(f"w{token}" for token in said[:7]) + " "
    assert tokens == said[:9]
    assert finished.finish_reason == "stop"
    for host in cluster.hosts:
        await host.idle()


@pytest.mark.parametrize("stages", [1, 2])
async def test_the_context_ends_a_generation(
    split: Callable, tiny: TinyModel, stages: int
) -> None:
    cluster = await split(stages)
    client = await cluster.client()
    prompt = CONTEXT - 5
    _, tokens, finished = await client.whole(ask(prompt, 500))
    assert tokens == tiny.says(ids(prompt), 5, ignore_eos=True)
    assert finished.finish_reason == "length"
    with pytest.raises(UsageError, match=f"all of the model's {CONTEXT} positions"):
        await client.whole(ask(CONTEXT))
    for host in cluster.hosts:
        await host.idle()


async def test_a_chat_goes_through_the_models_template(split: Callable, tiny: TinyModel) -> None:
    cluster = await split(2)
    client = await cluster.client()
    messages = (ChatMessage("system", words(2)), ChatMessage("user", words(4)))
    prompt = (BEGIN, *ids(2), END, BEGIN, *ids(4), END, BEGIN)
    request = GenerateRequest(model="tiny", messages=messages, max_tokens=9, ignore_eos=True)
    text, tokens, finished = await client.whole(request)
    assert tokens == tiny.says(prompt, 9, ignore_eos=True)
    assert finished.usage.prompt_tokens == len(prompt)
    assert "<|" not in text


async def test_an_empty_prompt_is_the_users_mistake(split: Callable) -> None:
    client = await (await split(1)).client()
    with pytest.raises(UsageError, match="empty"):
        await client.whole(GenerateRequest(model="tiny", raw="  "))


async def test_text_streams_as_it_is_drawn(split: Callable, tiny: TinyModel) -> None:
    client = await (await split(2)).client()
    async with aclosing(client.generate(ask(5, 10))) as stream:
        events = [event async for event in stream]
    assert isinstance(events[0], RouteChosen)
    assert events[0].prompt_tokens == 5
    assert isinstance(events[-1], Finished)
    assert events[-1].route == events[0].route
    deltas = [event for event in events if isinstance(event, TextDelta)]
    assert [event.token_ids for event in deltas] == [
        (token,) for token in tiny.says(ids(5), 10, ignore_eos=True)
    ]


@pytest.mark.parametrize("stages", [1, 2, 5])
async def test_generations_at_once_share_nothing(
    split: Callable, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch, stages: int
) -> None:
    monkeypatch.setattr(stage_run, "PREFILL_ROWS", 8)
    cluster = await split(stages)
    clients = [await cluster.client(), await cluster.client(), cluster.hosts[-1].client]
    asked = [(1, 0), (5, 1), (13, 2), (21, 3), (5, 4), (2, 5)]
    answers = await asyncio.gather(
        *(clients[at % 3].whole(ask(n, 12, salt)) for at, (n, salt) in enumerate(asked))
    )
    for (length, salt), (_, tokens, _) in zip(asked, answers, strict=True):
        assert tokens == tiny.says(ids(length, salt), 12, ignore_eos=True)
    assert len({tokens for _, tokens, _ in answers}) == len(asked)
    for host in cluster.hosts:
        await host.idle()
