"""Hosts that nobody can dial serve as others do, and their Sessions end as everywhere."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.view import Finished, GenerateRequest, TextDelta
from tests.services.tiny_model import ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from tests.services.cluster import Cluster
    from tests.services.tiny_model import TinyModel


def ask(count: int) -> GenerateRequest:
    return GenerateRequest(model="tiny", raw=words(13), max_tokens=count, ignore_eos=True)


async def heard(stream: AsyncGenerator, count: int) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < count:
        event = await anext(stream)
        if isinstance(event, TextDelta):
            tokens.extend(event.token_ids)
    return tokens


async def nothing_left(cluster: Cluster) -> None:
    for host in cluster.hosts:
        await host.idle()


@pytest.mark.parametrize("sockets", [False, True])
async def test_hosts_behind_one_sentinel_say_what_the_whole_model_says(
    split: Callable, tiny: TinyModel, *, sockets: bool
) -> None:
    cluster = await split(2, sockets=sockets, relayed=True)
    client = await cluster.client()
    _, tokens, finished = await client.whole(ask(40))
    assert tokens == tiny.says(ids(13), 40, ignore_eos=True)
    assert [step.via for step in finished.route] == ["relay", "relay"]
    assert not finished.events
    await nothing_left(cluster)
