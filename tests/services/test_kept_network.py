"""A look at the network for weeks: fresh while anybody asks, found again when it is lost."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.file_storage import FileStorage
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.domain.view import Finished, GenerateRequest, TextDelta
from diffuse_core.errors import ModelUnknown, Refused, Unreachable, UsageError
from diffuse_core.services import kept_network
from diffuse_core.services.chosen_models import ChosenModels
from diffuse_core.services.client import ClientService
from diffuse_core.services.kept_network import KeptNetwork, Times
from diffuse_core.services.observer import Observer
from tests.services.cluster import Cluster, tokenizer_of
from tests.services.test_discovery import Net, node_id
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack
    from pathlib import Path

    from diffuse_core.domain.view import NetworkView

TIMES = Times(
    fresh=0.05,
    idle=0.3,
    asking=0.2,
    lost=0.3,
    wait=0.4,
    first_pause=0.02,
    last_pause=0.1,
    find=2.0,
    linger=5.0,
)


class Finder:
    """Looks for the network at `places`, as somebody new each time, and remembers who looked."""

    def __init__(self, make: Callable[[], Observer], *places: str) -> None:
        self.make = make
        self.places = list(places)
        self.made: list[Observer] = []
        self.tries = 0
        self.error: Exception | None = None

    async def __call__(self) -> Observer:
        self.tries += 1
        if self.error is not None:
            raise self.error
        observer = self.make()
        try:
            await observer.look(self.places)
        except BaseException:
            await observer.close()
            raise
        self.made.append(observer)
        return observer


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_network, "RETRY_S", 0.02)


@pytest.fixture
def net(stack: AsyncExitStack) -> Net:
    return Net(stack)


def kept_of(stack: AsyncExitStack, finder: Finder, directory: Path, **times: float) -> KeptNetwork:
    def client(observer: Observer) -> ClientService:
        storage = FileStorage(directory / "bundles")
        return ClientService(observer, storage, tokenizer_of, random.Random(1))

    kept = KeptNetwork(finder, client, SystemClock(), replace(TIMES, **times))
    stack.push_async_callback(kept.close)
    kept.start()
    return kept


def finder_on(net: Net, *places: str) -> Finder:
    numbers = iter(range(100, 250))
    return Finder(lambda: net.observer(next(numbers)), *places)


def seen(view: NetworkView) -> set[bytes]:
    return {bytes.fromhex(node.node) for node in view.nodes if node.liveness != "dead"}


async def test_the_picture_follows_the_network(
    stack: AsyncExitStack, net: Net, tmp_path: Path
) -> None:
    await net.node(1)
    kept = kept_of(stack, finder := finder_on(net, "mem:1"), tmp_path)
    assert seen(await kept.view()) == {node_id(1)}
    await net.node(2, "mem:1")

    async with asyncio.timeout(5):
        while seen(await kept.view()) != {node_id(1), node_id(2)}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert len(finder.made) == 1


async def test_without_a_network_it_says_so_in_time_and_finds_it_when_it_comes(
    stack: AsyncExitStack, net: Net, tmp_path: Path
) -> None:
    kept = kept_of(stack, finder_on(net, "mem:1"), tmp_path)
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(Unreachable, match=r"no node of the network could be reached.*mem:1"):
        await kept.view()
    assert loop.time() - started < TIMES.wait + 1
    await net.node(1)
    async with asyncio.timeout(5):
        while True:
            try:
                found = await kept.view()
            except Unreachable:
                continue
            break
    assert seen(found) == {node_id(1)}


async def test_whoever_asks_while_it_is_looked_for_waits_for_it(
    stack: AsyncExitStack, net: Net, tmp_path: Path
) -> None:
    kept = kept_of(stack, finder := finder_on(net, "mem:1"), tmp_path, wait=5.0)
    asking = [asyncio.create_task(kept.view()) for _ in range(5)]
    await until(lambda: finder.tries > 2)
    await net.node(1)
    assert [seen(view) for view in await asyncio.gather(*asking)] == [{node_id(1)}] * 5
    assert len(finder.made) == 1


async def test_all_gone_and_come_back_elsewhere_is_found_anew(
    stack: AsyncExitStack, net: Net, tmp_path: Path
) -> None:
    first = await net.node(1)
    kept = kept_of(stack, finder := finder_on(net, "mem:1", "mem:2"), tmp_path)
    await kept.view()
    await first.stop()
    await net.node(2)
    async with asyncio.timeout(5):
        while True:
            try:
                view = await kept.view()
            except Unreachable:
                continue
            if seen(view) == {node_id(2)}:
                break
            await asyncio.sleep(0.01)
    assert len(finder.made) == 2
    # Nobody uses the first look any more.
    await until(lambda: not finder.made[0].links.linked())


async def test_also_while_nobody_asks(stack: AsyncExitStack, net: Net, tmp_path: Path) -> None:
    first = await net.node(1)
    kept = kept_of(stack, finder := finder_on(net, "mem:1", "mem:2"), tmp_path)
    await until(lambda: finder.made)
    await first.stop()
    await net.node(2)
    await until(lambda: len(finder.made) == 2)
    assert seen(await kept.view()) == {node_id(2)}


async def test_a_crowd_of_requests_waits_once_for_a_network_that_is_silent(
    stack: AsyncExitStack, net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would try for itself, one after the other."""
    await net.node(1)
    kept = kept_of(stack, finder := finder_on(net, "mem:1"), tmp_path)
    await kept.view()
    tries = 0

    async def in_vain() -> None:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0.1)

    monkeypatch.setattr(finder.made[0], "look_again", in_vain)
    finder.places = ["mem:77"]
    await asyncio.sleep(TIMES.lost)
    loop = asyncio.get_running_loop()
    started = loop.time()
    answers = await asyncio.gather(*(kept.view() for _ in range(50)), return_exceptions=True)
    assert loop.time() - started < 2.0
    assert all(isinstance(answer, Unreachable) for answer in answers)
    assert tries < 10


async def test_it_is_not_tried_more_often_because_many_ask(
    stack: AsyncExitStack, net: Net, tmp_path: Path
) -> None:
    kept = kept_of(stack, finder := finder_on(net, "mem:1"), tmp_path, first_pause=0.1, fresh=0.1)
    asking: list[asyncio.Task[NetworkView]] = []
    for _ in range(60):
        asking.append(asyncio.create_task(kept.view()))
        await asyncio.sleep(0.005)
    tries = finder.tries
    told = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(answer, Unreachable) for answer in told)
    assert tries <= 1 + 1.0 / 0.1


@pytest.mark.parametrize(
    "error", [Refused("not allowed there", "owner"), UsageError("a bad key"), OSError("no disk")]
)
async def test_what_keeps_it_from_being_found_is_told_and_does_not_end_the_search(
    stack: AsyncExitStack, net: Net, tmp_path: Path, error: Exception
) -> None:
    await net.node(1)
    finder = finder_on(net, "mem:1")
    finder.error = error
    kept = kept_of(stack, finder, tmp_path)
    await until(lambda: finder.tries > 1)
    with pytest.raises(Unreachable, match=str(error)):
        await kept.view()
    finder.error = None
    await until(lambda: finder.made)
    assert seen(await kept.view()) == {node_id(1)}


async def test_a_defect_in_the_search_does_not_end_it(
    stack: AsyncExitStack, net: Net, tmp_path: Path
) -> None:
    await net.node(1)
    finder = finder_on(net, "mem:1")
    finder.error = ValueError("a defect")
    kept = kept_of(stack, finder, tmp_path)
    await until(lambda: finder.tries > 1)
    with pytest.raises(Unreachable, match="defect"):
        await kept.view()
    finder.error = None
    await until(lambda: finder.made)
    assert seen(await kept.view()) == {node_id(1)}


async def test_a_defect_in_a_refresh_is_as_a_node_that_is_silent(
    stack: AsyncExitStack, net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await net.node(1)
    kept = kept_of(stack, finder := finder_on(net, "mem:1"), tmp_path)
    await kept.view()

    async def broken() -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(finder.made[0], "look_again", broken)
    await until(lambda: len(finder.made) == 2)
    assert seen(await kept.view()) == {node_id(1)}


async def test_a_look_that_was_given_up_is_not_refreshed(
    stack: AsyncExitStack, net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waited for it meanwhile would wait for it once more."""
    await net.node(1)
    kept = kept_of(stack, finder := finder_on(net, "mem:1"), tmp_path)
    await kept.view()
    look = kept._look
    assert look is not None
    kept._drop(look)

    async def again() -> None:
        raise AssertionError

    monkeypatch.setattr(finder.made[0], "look_again", again)
    kept._tried_at = 0.0
    await kept._refresh(look)
    assert kept._tried_at == 0.0


async def test_closing_leaves_nothing(stack: AsyncExitStack, net: Net, tmp_path: Path) -> None:
    await net.node(1)
    before = asyncio.all_tasks()
    kept = kept_of(stack, finder := finder_on(net, "mem:1"), tmp_path)
    await kept.view()
    await kept.close()
    assert not finder.made[0].links.linked()
    await until(lambda: asyncio.all_tasks() <= before)


def request(model: str, tokens: int = 4, **more: object) -> GenerateRequest:
    return GenerateRequest(
        model=model, raw="one two three", max_tokens=tokens, ignore_eos=True, **more
    )


def finder_in(cluster: Cluster) -> Finder:
    return Finder(
        lambda: Observer(cluster.transport(cluster.identity()), SystemClock()), *cluster.bootstrap
    )


@pytest.mark.slow
async def test_generations_go_on_while_the_look_under_them_is_replaced(
    stack: AsyncExitStack, split: Callable, tmp_path: Path
) -> None:
    cluster: Cluster = await split(2)
    finder = finder_in(cluster)
    kept = kept_of(stack, finder, tmp_path)
    model = (await kept.view()).models[0].id
    tokens, other = 0, 0
    async with aclosing(kept.generate(request(model, 40))) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                tokens += 1
            if tokens == 3 and len(finder.made) == 1:
                kept._drop(kept._look)
                await until(lambda: len(finder.made) == 2)
                assert finder.made[0].links.linked()
                async with aclosing(kept.generate(request(model))) as more:
                    async for one in more:
                        other += isinstance(one, TextDelta)
            if isinstance(event, Finished):
                assert event.usage.completion_tokens == 40
    assert other >= 1
    await until(lambda: not finder.made[0].links.linked())
    assert finder.made[1].links.linked()


@pytest.mark.slow
async def test_a_look_that_is_used_for_too_long_is_closed_all_the_same(
    stack: AsyncExitStack, split: Callable, tmp_path: Path
) -> None:
    cluster: Cluster = await split(1)
    finder = finder_in(cluster)
    kept = kept_of(stack, finder, tmp_path, linger=0.05)
    await kept.view()
    async with kept._used():
        kept._drop(kept._look)
        await until(lambda: not finder.made[0].links.linked())


async def test_only_chosen_models_are_shown_and_answer(
    stack: AsyncExitStack, split: Callable, tmp_path: Path
) -> None:
    cluster: Cluster = await split(1)
    kept = kept_of(stack, finder_in(cluster), tmp_path)
    name = (await kept.view()).models[0].id
    chosen, none = ChosenModels(kept, (name.upper(),)), ChosenModels(kept, ("other",))
    assert [model.id for model in (await chosen.view()).models] == [name]
    assert (await none.view()).models == ()
    assert await chosen.token_texts(name, [5]) == await kept.token_texts(name, [5])
    assert await chosen.token_bytes(name, [5]) == await kept.token_bytes(name, [5])
    assert await chosen.tool_format(name) == await kept.tool_format(name)
    with pytest.raises(ModelUnknown):
        await none.token_texts(name, [5])
    with pytest.raises(ModelUnknown):
        async for _ in none.generate(request(name)):
            pass
    finished = [event async for event in chosen.generate(request(name))][-1]
    assert isinstance(finished, Finished)
