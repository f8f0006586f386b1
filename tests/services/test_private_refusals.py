"""What private mode does not do, in words; and what of the network it can do without."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import OpenSession, SessionFailed
from diffuse_core.domain.view import GenerateRequest, Healed, TextDelta
from diffuse_core.errors import (
    ModelIncomplete,
    ModelUnknown,
    ModelUnusable,
    StagesLost,
    UsageError,
)
from tests.services.private_client import private_client
from tests.services.tiny_model import ids, make_tiny_model, words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.services.cluster import Cluster
    from tests.services.tiny_model import TinyModel


def ask(tokens: int = 5, count: int = 6, **options: object) -> GenerateRequest:
    return GenerateRequest(
        model="tiny", raw=words(tokens), max_tokens=count, **{"ignore_eos": True, **options}
    )


@pytest.mark.parametrize(
    ("options", "words_"),
    [
        ({"private": 10}, "use at most --private 9"),
        ({"private": 6, "private_tail": 4}, "use at most --private 5"),
        ({"private_tail": 2}, "needs --private K"),
        (
            {"private": 2, "sampling": SamplingParams(repetition_penalty=1.2)},
            "--repetition-penalty: .* add --private-tail 1",
        ),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_is_loaded(
    split: Callable, options: dict[str, object], words_: str
) -> None:
    hidden = await private_client(await split(1))
    with pytest.raises(UsageError, match=words_):
        await hidden.client.whole(ask(**options))
    assert hidden.loaded == hidden.told == []
    assert not any(isinstance(one, OpenSession) for one in hidden.ear.messages())


async def test_a_client_that_runs_no_layers_says_so(split: Callable) -> None:
    cluster = await split(1)
    for client in (await cluster.client(), cluster.hosts[0].client):
        with pytest.raises(UsageError, match="use `diffuse query` or `diffuse chat`"):
            await client.whole(ask(private=1))


async def test_what_does_not_fit_is_refused_with_what_would(split: Callable) -> None:
    cluster = await split(1)
    hidden = await private_client(cluster, free=168_000)
    with pytest.raises(UsageError, match="--private 2 would fit; or ask for fewer tokens"):
        await hidden.client.whole(ask(private=9))
    assert hidden.told == hidden.loaded == []
    # What is loaded leaves too little for a long answer, and the short one still comes.
    roomy = await private_client(cluster, free=138_000)
    _, wanted, _ = await (await cluster.client()).whole(ask())
    assert (await roomy.client.whole(ask(private=1)))[1] == wanted
    with pytest.raises(UsageError, match="ask for fewer tokens"):
        await roomy.client.whole(ask(60, 68, private=1))
    assert (await roomy.client.whole(ask(private=1)))[1] == wanted
    await roomy.idle()


async def test_what_it_takes_is_told_before_it_is_loaded(split: Callable) -> None:
    hidden = await private_client(await split(1))
    await hidden.client.whole(ask(private=2, private_tail=1))
    (line,) = hidden.told
    assert line.startswith(
        "private: layers 0:2 and 9:10 take 0.1 MiB of weights and 0.1 MiB of KV"
    )
    assert line.endswith("(of 4.0 GiB free)")
    assert hidden.loaded[-1] == ("loading layers 9:10", 1.0)
    loaded = sum(executor.weight_bytes for executor in hidden.layers.executors)
    assert f"{loaded / 2**20:.1f} MiB of weights" in line


async def test_other_weights_are_refused(split: Callable, tmp_path: Path, tiny: TinyModel) -> None:
    other = make_tiny_model(tmp_path / "tiny", context=256)
    cluster = await split(1)
    hidden = await private_client(cluster, named=str(other.path))
    with pytest.raises(ModelUnusable, match="has other weights than tiny on the network"):
        await hidden.client.whole(ask(private=1))
    assert hidden.layers.executors == ()


async def test_weights_that_cannot_be_had_by_the_name(split: Callable) -> None:
    hidden = await private_client(await split(1), named="")
    with pytest.raises(ModelUnknown, match="--private-model"):
        await hidden.client.whole(ask(private=1))


async def test_nobody_else_needs_to_hold_what_runs_here(cluster: Cluster, tiny: TinyModel) -> None:
    """One host of the first half, one of the second, and the first goes."""
    first = await cluster.host(5)
    second = await cluster.host(5)
    hidden = await private_client(cluster)
    head = first if first.service.slice.start == 0 else second
    await cluster.leave(head)
    cluster.hosts.remove(head)
    await hidden.observer.look(cluster.bootstrap)
    _, tokens, finished = await hidden.client.whole(ask(private=5))
    assert tokens == tiny.says(ids(5), 6, ignore_eos=True)
    assert [step.via for step in finished.route] == ["local", "direct"]
    with pytest.raises(ModelIncomplete, match="4:5"):
        await hidden.client.whole(ask(private=4))


async def test_a_host_that_blames_our_own_layers_loses_its_place(split: Callable) -> None:
    cluster = await split(1)
    await cluster.host()
    hidden = await private_client(cluster)
    _, wanted, _ = await (await cluster.client()).whole(ask(5, 30))
    tokens: list[int] = []
    healed: list[Healed] = []
    async with aclosing(hidden.client.generate(ask(5, 30, private=2, private_tail=2))) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                tokens += event.token_ids
            elif isinstance(event, Healed):
                healed.append(event)
            if len(tokens) == 3 and not healed:
                (liar,) = (host for host in cluster.hosts if host.service.stage.sessions)
                (run,) = liar.service.stage._runs.values()
                said = SessionFailed(
                    run.state.id, NodeId(hidden.stages.node), "lost", "no answer", kept=True
                )
                await run.client.send(said)
    assert tuple(tokens) == wanted
    assert [event.lost.node for event in healed] == [liar.id.hex()]
    await hidden.idle()


async def test_a_failure_of_our_own_layers_ends_it_with_what_came(split: Callable) -> None:
    hidden = await private_client(await split(1))
    tokens: list[int] = []

    async def read() -> None:
        async with aclosing(hidden.client.generate(ask(5, 30, private=2))) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    tokens.extend(event.token_ids)
                    (own,) = hidden.stages.stages
                    for run in list(own._runs.values()):
                        own._fail(run, hidden.stages.node, "memory", "no memory is left")

    with pytest.raises(StagesLost, match="the layers that run here failed: no memory is left"):
        await read()
    assert tokens
    await hidden.idle()


async def test_an_interrupted_load_stops_and_can_be_taken_up(split: Callable) -> None:
    cluster = await split(1)
    hidden = await private_client(cluster)
    begun, loop = asyncio.Event(), asyncio.get_running_loop()
    progress = hidden.layers._means.progress
    asked = asyncio.create_task(hidden.client.whole(ask(private=2)))

    def watched(what: str, fraction: float) -> None:
        progress(what, fraction)
        loop.call_soon_threadsafe(begun.set)

    hidden.layers._means = type(hidden.layers._means)(
        **{**vars(hidden.layers._means), "progress": watched}
    )
    await begun.wait()
    asked.cancel()
    await asyncio.wait([asked])
    assert asked.cancelled()
    assert hidden.layers.executors == ()
    text, _, _ = await hidden.client.whole(ask(private=2))
    assert text
    await hidden.idle()
