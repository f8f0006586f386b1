"""A client that vanishes in the middle of an answer: ten seconds later no Stage holds anything."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

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
