"""One link, or one client, that brings much at once does not keep others from being heard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import CloseSession
from diffuse_core.services import links as links_module
from diffuse_core.services.links import Links
from tests.services.intruder import SESSION, Intruder
from tests.services.waiting import until

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    import pytest

    from diffuse_core.services.link import Link
    from tests.services.cluster import Cluster


async def test_what_came_at_once_over_a_link_is_not_handled_all_at_once(
    stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links_module, "TURN_S", 0.0)
    network, turns = MemoryNetwork(), 0
    one, two = (Identity(bytes([number]) * 32).node for number in (1, 2))
    sender, hearer = (Links(network.transport(node), node) for node in (one, two))
    stack.push_async_callback(sender.close)
    stack.push_async_callback(hearer.close)
    listener = await network.transport(two).listen("mem", 0, hearer.accept)
    stack.push_async_callback(listener.close)
    heard: list[int] = []

    async def hear(_link: Link, _message: CloseSession, _body: memoryview) -> None:
        heard.append(turns)

    hearer.handle(CloseSession, hear)
    link = await sender.to(two, (listener.address,))
    for _ in range(40):
        await link.send(CloseSession(SESSION))
    while len(heard) < 40:
        turns += 1
        await asyncio.sleep(0)
    assert heard[-1] - heard[0] >= 20


async def test_a_client_that_opens_many_sessions_has_one_opened_at_a_time(
    pair: Cluster,
) -> None:
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start == 0)
    stage = host.service.stage
    link = await intruder.to(host)
    under_way: list[int] = []
    executor, loop = host.executors[-1], asyncio.get_running_loop()
    plain = executor.open

    def count() -> None:
        tasks = [task.get_name() for task in stage._tasks._tasks]
        under_way.append(tasks.count("stage:open"))

    def noted(*given: object) -> None:
        loop.call_soon_threadsafe(count)
        plain(*given)

    executor.open = noted
    names = [number.to_bytes(16) for number in range(20)]
    for name in names:
        await link.send(intruder.opening(host, session=name))
    await until(lambda: len(under_way) == 20)
    assert max(under_way) <= 1
    for name in names:
        await link.send(CloseSession(name))
    await host.idle()


async def test_a_session_closed_as_soon_as_it_is_asked_for_leaves_nothing(pair: Cluster) -> None:
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start == 0)
    link = await intruder.to(host)
    for number in range(20):
        name = number.to_bytes(16)
        await link.send(intruder.opening(host, session=name))
        await link.send(CloseSession(name))
    # It answers in order.
    await link.send(intruder.opening(host, session=b"?" * 16, fingerprint="0" * 64))
    while (await intruder.answer()).session != b"?" * 16:
        pass
    await host.idle()
