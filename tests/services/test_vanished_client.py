"""A client that vanishes in the middle of an answer: ten seconds later no Stage holds anything."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.messages import TokensDrawn
from tests.services import striking
from tests.services.scripted_time import now, played
from tests.services.stage_net import swallow
from tests.services.striking import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.services.stage_net import StageNet
    from tests.services.tiny_model import TinyModel

pytestmark = pytest.mark.usefixtures("in_pieces")

FORGOTTEN_S = 10.0
STEP_S = 0.05
AFTER_TOKENS = 5
LONG = 80
"""Tokens, more than a client grants ahead."""


def freezes(net: StageNet) -> None:
    """As SIGSTOP: its links stand, and nothing comes over them."""
    for links in net.links.linked().values():
        for link in links:
            link.send = swallow


def is_killed(net: StageNet) -> None:
    """As SIGKILL: its links end."""
    for host in net.hosts:
        net.memory.cut(net.id, host.id)


@pytest.mark.parametrize("tokens", [0, AFTER_TOKENS], ids=["opened", "answering"])
@pytest.mark.parametrize("vanishes", [freezes, is_killed])
def test_nothing_is_held_for_it(
    tiny: TinyModel, vanishes: Callable[[StageNet], None], tokens: int
) -> None:
    async def act(net: StageNet) -> None:
        await striking.hosts(net, (1, 1, 1))
        answer = Answer(net)
        await answer.open()
        for _ in range(tokens):
            await answer.asked.next()
        vanishes(net)
        began = now()
        stages = [host.stage for host in net.hosts]
        assert all(stage.kv_used > 0 for stage in stages)
        while any(stage.sessions or stage.kv_used for stage in stages):
            assert now() - began <= FORGOTTEN_S
            await asyncio.sleep(STEP_S)
        for host in net.hosts:
            assert not host.executor._sessions
        await answer.asked.close()

    played(tiny, act)


@pytest.mark.parametrize("alone", [True, False], ids=["no replica", "replicas"])
def test_it_goes_on_when_it_was_only_asleep(tiny: TinyModel, *, alone: bool) -> None:
    """Stages that let its session go take it again, though nobody else may take their places."""
    said: list[list[int]] = []

    async def act(net: StageNet, asleep: bool) -> None:
        await striking.hosts(net, (1, 1, 1) if alone else (2, 2, 2))
        asked = net.generation(striking.PROMPT, LONG, striking.SAMPLING, grace_s=5.0)
        await asked.open()
        tokens = list((await asked.next()).tokens)
        if asleep:
            awake = [(link, link.send) for links in net.links.linked().values() for link in links]
            freezes(net)
            while any(host.stage.sessions for host in net.hosts):
                await asyncio.sleep(STEP_S)
            for link, send in awake:
                link.send = send
        while len(tokens) < LONG:
            event = await asked.next()
            if isinstance(event, TokensDrawn):
                tokens += event.tokens
        said.append(tokens)
        await asked.close()

    played(tiny, partial(act, asleep=False))
    played(tiny, partial(act, asleep=True))
    assert said[0] == said[1]
