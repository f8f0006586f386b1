"""What the owner is told beside the network: heals and audits, models, more nodes than fit."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec
import pytest

from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.domain.machine import Temperature
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import Audited, Healed, RouteStep
from diffuse_core.errors import Refused
from diffuse_core.ports import SensorSample
from diffuse_core.services import feed, model_reporter
from diffuse_core.services.model_reporter import ModelReporter
from diffuse_core.services.quarantine import QuarantineBook
from diffuse_core.services.sensing import Sensing
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "TICK_S", 0.02)


async def test_more_than_a_frame_holds_comes_without_addresses(
    split: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await split(1)
    host = cluster.hosts[0]
    view = host.node.view()
    (node,), (model,) = view.nodes[:1], view.models
    talkative = msgspec.structs.replace(node, addresses=("a" * 192,) * 4, relays=("b" * 64,) * 4)
    small = msgspec.structs.replace(model, id="small", hosts=0)
    crowd = msgspec.structs.replace(
        view, nodes=(talkative,) * 4096, models=(*(small,) * feed.MAX_MODELS, model)
    )
    monkeypatch.setattr(host.node, "view", lambda: crowd)
    attached = await cluster.attach(host)
    async with asyncio.timeout(5), aclosing(attached.updates()) as updates:
        got = (await anext(updates)).view
    assert len(got.nodes) == 4096
    assert got.nodes[0] == msgspec.structs.replace(node, addresses=(), relays=())
    assert len(got.models) == feed.MAX_MODELS
    assert got.models[0] == model


async def test_the_longest_names_there_are_do_not_blind_the_owner(
    split: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await split(1)
    host = cluster.hosts[0]
    view = host.node.view()
    (node,), (model,) = view.nodes[:1], view.models
    loud = [
        msgspec.structs.replace(
            node,
            node=f"{number:064x}",
            me=False,
            liveness="dead" if number % 2 else "suspect",
            version="\N{GRINNING FACE}" * 32,
            model="\N{GRINNING FACE}" * 128,
            kv_used=2**50,
            kv_budget=2**50,
        )
        for number in range(4095)
    ]
    crowd = msgspec.structs.replace(
        view,
        nodes=(*loud, node),
        models=(msgspec.structs.replace(model, replicas=(300,) * 1024),) * feed.MAX_MODELS,
    )
    monkeypatch.setattr(host.node, "view", lambda: crowd)
    attached = await cluster.attach(host)
    async with asyncio.timeout(5), aclosing(attached.updates()) as updates:
        got = (await anext(updates)).view
    assert len(got.nodes) == feed.MAX_NODES
    assert node.node in {one.node for one in got.nodes}
    assert not any(one.liveness == "dead" for one in got.nodes)


async def test_the_sensors_are_asked_while_somebody_watches(split: Callable) -> None:
    cluster = await split(1)
    host = cluster.hosts[0]
    asked = []

    class Sensors:
        def sample(self) -> SensorSample:
            asked.append(True)
            return SensorSample(temperatures=(Temperature("CPU", 50.0),), disk_free=7)

    host.feed._sensing = Sensing(Sensors(), host.node.clock)
    await asyncio.sleep(0.05)
    assert not asked
    attached = await cluster.attach(host)
    async with asyncio.timeout(5), aclosing(attached.updates()) as updates:
        async for update in updates:
            telemetry = update.telemetry
            if telemetry.disk_free is not None:
                break
    assert telemetry.temperatures == (Temperature("CPU", 50.0),)
    assert telemetry.progress is None
    assert telemetry.reason


async def test_the_owner_sees_whom_audits_found_out(split: Callable) -> None:
    cluster = await split(2)
    host, other = cluster.hosts
    host.service.device = "cuda"
    attached = await cluster.attach(host)
    async with asyncio.timeout(5), aclosing(attached.updates()) as updates:
        first = await anext(updates)
        assert {node.quarantine for node in first.view.nodes} == {None}
        assert first.telemetry.device == "cuda"
        host.client.quarantine.suspect(host.id)
        host.client.quarantine.bar(other.id)
        async for update in updates:
            found = {node.node: node.quarantine for node in update.view.nodes if node.quarantine}
            if found:
                break
        assert found == {host.id.hex(): "doubtful", other.id.hex(): "quarantined"}
        # Whoever wrote it down, it is an event; what an answer's own audit told already is not
        # told again.
        host.client.quarantine.clear()
        told: list[str] = []
        async for update in updates:
            told += [event.text for event in update.events]
            if sum("no longer" in text for text in told) == 2:
                break
        guilty = (other.id.hex(),)
        host.client.quarantine.bar(other.id)
        host.feed._tell(
            Audited(node=guilty[0], slice=Slice(0, 3), verdict="unaudited", quarantined=guilty)
        )
        count = host.node.event_count
        await anext(updates)
        await anext(updates)
        assert host.node.event_count == count
    short = other.id.hex()[:8]
    why = "an audit found that what it computed is wrong"
    assert f"{short} is quarantined: {why}" in told
    assert f"{short} is quarantined no longer" in told


async def test_heals_and_audits_are_events(split: Callable) -> None:
    cluster = await split(1)
    host = cluster.hosts[0]
    step = RouteStep("a" * 64, Slice(0, 3))
    healed = Healed(lost=step, why="it closed", replaced_by=(step,), seconds=0.5, route=(step,))
    host.feed._tell(healed)
    host.feed._tell(Audited(node="a" * 64, slice=Slice(0, 3), verdict="unaudited"))
    accused = Audited(
        node="a" * 64,
        slice=Slice(0, 3),
        verdict="unaudited",
        reason="?",
        doubtful=("a" * 64,),
    )
    host.feed._tell(accused)
    host.feed._tell(msgspec.structs.replace(accused, quarantined=("a" * 64,)))
    told = list(host.node.events)[-3:]
    assert [event.level for event in told] == ["good", "warning", "error"]
    assert told[0].text.startswith("an answer lost aaaaaaaa (layers 0:3): it closed; went on")


async def test_a_model_that_is_lost_is_told(
    split: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_S", "LOOK_S", "SETTLE_S"):
        monkeypatch.setattr(model_reporter, name, 0.02)
    cluster = await split(2)
    host, other = cluster.hosts
    reporter = ModelReporter(host.node)
    cluster.stack.push_async_callback(reporter.close)
    reporter.start()
    await until(lambda: reporter._news._known)
    await cluster.leave(other)
    await until(lambda: any("tiny is Incomplete" in event.text for event in host.node.events))


async def test_a_list_that_cannot_be_read_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def read(self, _name: str) -> bytes:
            if self.well:
                return b""
            raise Refused("the disk is broken", "state")

        well = False

    storage = Broken()
    book = QuarantineBook(storage, SystemClock())
    for well in (False, False, True, False, False):
        storage.well = well
        assert book.standings() == {}
    told = [one for one in caplog.records if "cannot be read" in one.message]
    assert len(told) == 2
