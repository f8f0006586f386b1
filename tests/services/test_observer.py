"""An observer asks once more when a node is too busy, and says so when it stays busy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.allowances import Allowances
from diffuse_core.domain.exchange import LOOKS
from diffuse_core.errors import Unreachable
from diffuse_core.services import observer as module
from tests.services.test_discovery import Net, node_id
from tests.services.waiting import until

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.services.links import Link

PATIENCE_S = 5.0
"""Half of what an observer waits for a node that says nothing."""


async def _exhaust(net: Net, address: str) -> None:
    """Look from the id that all observers here have, until the node there has enough of it."""
    observer = net.observer()
    for _ in range(int(LOOKS[0])):
        await observer.look([address])


@pytest.fixture
def net(stack: AsyncExitStack) -> Net:
    return Net(stack)


async def test_who_looked_too_often_is_told_at_once(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUSY_PAUSE_S", 0.0)
    await net.node(1)
    await _exhaust(net, "mem:1")
    started = time.monotonic()
    with pytest.raises(Unreachable, match="too busy to tell what it knows; ask again"):
        await net.observer().look(["mem:1"])
    assert time.monotonic() - started < PATIENCE_S
    other = net.observer(98)
    await other.look(["mem:1"])
    assert len(other.members()) == 1, "others are answered as ever"


async def test_the_next_address_is_tried_when_one_is_busy(net: Net) -> None:
    await net.node(1)
    await net.node(2)
    await _exhaust(net, "mem:1")
    observer = net.observer()
    await observer.look(["mem:1", "mem:2"])
    assert {member.record.node for member in observer.members()} == {node_id(2)}


async def test_a_busy_node_is_asked_once_more_after_a_pause(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUSY_PAUSE_S", 0.0)
    node = await net.node(1)
    await _exhaust(net, "mem:1")
    observer = net.observer()
    pull, problems = observer._pull, []

    async def pull_and_let_time_pass(link: Link) -> str | None:
        problems.append(await pull(link))
        node._gossip._exchange._looks = Allowances(*LOOKS)
        return problems[-1]

    monkeypatch.setattr(observer, "_pull", pull_and_let_time_pass)
    await observer.look(["mem:1"])
    assert len(observer.members()) == 1
    assert ["too busy" in str(problem) for problem in problems] == [True, False]


async def test_a_picture_is_renewed_when_it_is_no_longer_fresh(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await net.node(1)
    observer = net.observer()
    await observer.look(["mem:1"])
    await net.node(2, "mem:1")
    await until(lambda: len(node.members()) == 2)
    monkeypatch.setattr(module, "FRESH_S", 60.0)
    await observer.look_again()
    assert len(observer.members()) == 1
    monkeypatch.setattr(module, "FRESH_S", 0.0)
    await observer.look_again()
    assert len(observer.members()) == 2


@pytest.mark.parametrize("how", ["gone", "silent"])
async def test_others_are_asked_when_who_told_before_is(
    net: Net, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(module, "FRESH_S", 0.0)
    first = await net.node(1)
    await net.node(2, "mem:1")
    await until(lambda: len(first.members()) == 2)
    observer = net.observer()
    await observer.look(["mem:1"])
    if how == "gone":
        await first.stop()
    else:
        observer._asked.fell_silent()
    before = observer._pulled_at
    await observer.look_again()
    assert observer._pulled_at > before
    assert observer._asked.remote == node_id(2)


async def test_what_was_seen_is_kept_when_nobody_answers(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRESH_S", 0.0)
    node = await net.node(1)
    observer = net.observer()
    await observer.look(["mem:1"])
    await node.stop()
    await observer.look_again()
    assert len(observer.members()) == 1
