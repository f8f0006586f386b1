"""Hosts find their slices by themselves, agree on them, and move when a gap opens."""

from __future__ import annotations

import asyncio
import gc
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.domain import liveness
from diffuse_core.domain.lookout import Pace
from diffuse_core.domain.slices import Slice, gaps, replicas_per_layer
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.errors import ModelUnusable, UsageError
from diffuse_core.services import host as host_module
from diffuse_core.services import placement
from diffuse_core.services.devices import MEMORY_SHARE, PROCESS_RESERVE
from tests.services.tiny_model import LAYERS, ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from diffuse_core.domain.records import ModelRef
    from diffuse_core.model_ports import Executor, WeightSource
    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel


@pytest.fixture
def quick_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "PROBE_INTERVAL_S", 0.1)
    monkeypatch.setattr(liveness, "PROBE_TIMEOUT_S", 0.05)


def slices(hosts: Sequence[Host]) -> list[Slice]:
    return [host.service.slice for host in hosts]


async def say(cluster: Cluster, tiny: TinyModel) -> None:
    client = await cluster.client()
    request = GenerateRequest(model="tiny", raw=words(13), max_tokens=5, ignore_eos=True)
    assert (await client.whole(request))[1] == tiny.says(ids(13), 5, ignore_eos=True)


@pytest.mark.parametrize(("count", "cap"), [(2, 5), (3, 4), (5, 2), (6, 2)])
async def test_hosts_that_start_together_cover_the_model(
    cluster: Cluster, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch, count: int, cap: int
) -> None:
    monkeypatch.setattr(placement, "SETTLE_S", 0.5)
    hosts = [await cluster.host(cap, wait=False) for _ in range(count)]
    await cluster.settled(*hosts)
    assert gaps(LAYERS, slices(hosts)) == ()
    assert all(len(part) <= cap for part in slices(hosts))
    await say(cluster, tiny)


async def test_memory_decides_how_many_layers_a_host_takes(
    cluster: Cluster, tiny: TinyModel
) -> None:
    shape = DirectorySource(tiny.path).shape("fp32")
    for part in (Slice(0, 4), Slice(6, 10), Slice(3, 7)):
        host = await cluster.host(memory=shape.needed_bytes(part))
        assert shape.needed_bytes(host.service.slice) <= shape.needed_bytes(part)
        assert host.executors[0].weight_bytes == shape.weight_bytes(host.service.slice)
    assert slices(cluster.hosts)[0] == Slice(0, 4)
    assert gaps(LAYERS, slices(cluster.hosts)) == ()
    await say(cluster, tiny)


async def test_a_cap_too_small_for_a_layer_is_the_users_mistake(
    cluster: Cluster, tiny: TinyModel
) -> None:
    await cluster.start_sentinel()
    with pytest.raises(UsageError, match=r"one layer of tiny needs"):
        await cluster.host(memory=100)
    # The node of a host that failed says nothing of a model.
    assert not cluster.nodes[0].view().models


async def test_the_layer_count_in_records_is_the_executors(
    cluster: Cluster, tiny: TinyModel
) -> None:
    host = await cluster.host(3)
    holding = next(m.record.holding for m in cluster.nodes[0].members() if m.record.holding)
    assert holding.model.shape.layers == LAYERS == host.executors[0]._bounds.layers
    assert holding.slice == host.executors[0].slice
    assert holding.model == host.service.model


async def test_a_late_host_adds_a_replica_where_it_helps(cluster: Cluster) -> None:
    for cap in (5, 5, 5, 5):
        await cluster.host(cap)
    counts = replicas_per_layer(LAYERS, slices(cluster.hosts))
    assert counts == (2,) * LAYERS


@pytest.mark.slow
async def test_a_surplus_host_moves_into_a_gap(
    cluster: Cluster, tiny: TinyModel, quick_death: None
) -> None:
    hosts = [await cluster.host(5) for _ in range(4)]
    await say(cluster, tiny)
    parts = slices(hosts)
    doomed = [host for host, part in zip(hosts, parts, strict=True) if part == parts[0]]
    left = [host for host in hosts if host not in doomed]
    assert len(doomed) == 2
    old = [weakref.ref(host.executors[0]) for host in left]
    for host in doomed:
        cluster.crash(host)
    await until(lambda: gaps(LAYERS, [p for p in slices(left) if p]) == () and ready(left))
    assert sorted(slices(left)) == [Slice(0, 5), Slice(5, 10)]
    # Only one moved, and it keeps nothing of what it held.
    assert sum(len(host.executors) for host in left) == 3
    mover = next(host for host in left if len(host.executors) == 2)
    del mover.executors[0]
    gc.collect()
    assert [reference() is None for reference in old].count(True) == 1
    await cluster.settled(*left)
    await say(cluster, tiny)
    # Calm: nobody moves again.
    for _ in range(2 * Pace().patience):
        await asyncio.sleep(host_module.REPORT_S)
    assert sum(len(host.executors) for host in left) == 2


def ready(hosts: Sequence[Host]) -> bool:
    return all(host.service.ready.is_set() for host in hosts)


@pytest.mark.slow
async def test_nobody_moves_while_others_depend_on_it(
    cluster: Cluster, tiny: TinyModel, quick_death: None
) -> None:
    """Two hosts of which neither is surplus stay where they are when a third dies."""
    hosts = [await cluster.host(4) for _ in range(3)]
    before = slices(hosts)
    assert gaps(LAYERS, before) == ()
    lost = next(host for host in hosts if host.service.slice.start == 0)
    left = [host for host in hosts if host is not lost]
    cluster.crash(lost)
    watching = left[0].node
    await until(lambda: not any(model.servable for model in watching.view().models))
    for _ in range(3 * Pace().patience):
        await asyncio.sleep(host_module.REPORT_S)
    assert slices(left) == [part for part, h in zip(before, hosts, strict=True) if h is not lost]
    replacement = await cluster.host(4)
    assert replacement.service.slice.contains(Slice(0, 4))
    await say(cluster, tiny)


async def test_a_host_whose_load_fails_ends_with_the_reason(cluster: Cluster) -> None:
    def broken(*_: object) -> None:
        raise ModelUnusable("a tensor is missing; download the model again")

    with pytest.raises(ModelUnusable, match="tensor is missing"):
        await cluster.host(load=broken)


async def test_a_host_that_ends_while_it_loads_stops_loading(cluster: Cluster) -> None:
    loop = asyncio.get_running_loop()
    started, ended = asyncio.Event(), asyncio.Event()

    def endless(_source: object, _part: Slice, _contract: str, progress: object) -> None:
        progress(0.5)
        loop.call_soon_threadsafe(started.set)
        try:
            while True:
                progress(0.5)
        finally:
            loop.call_soon_threadsafe(ended.set)

    host = await cluster.host(load=endless, wait=False)
    async with asyncio.timeout(10):
        await started.wait()
        assert host.service.phase_text() == "loading 0:10, 50%"
        await cluster.end(host)
        await ended.wait()
    assert host.service.stage is None


async def test_a_host_tells_downloading_from_loading(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def fetch(_self: object, names: Collection[str], progress: Callable) -> None:
        for fraction in (0.0, 0.43, 1.0) if "a" in names else ():
            progress(fraction)
            told.append(cluster.hosts[0].service.phase_text())

    def load(source: WeightSource, part: Slice, contract: str, progress: Callable) -> Executor:
        source.fetch({"a"}, progress)
        progress(0.7)
        told.append(cluster.hosts[0].service.phase_text())
        return load_slice(source, part, contract, lambda _: None)

    monkeypatch.setattr(DirectorySource, "fetch", fetch)
    await cluster.settled(await cluster.host(load=load, wait=False))
    assert told == [
        "downloading 0:10",
        "downloading 0:10, 43%",
        "loading 0:10",
        "loading 0:10, 70%",
    ]


async def test_a_host_joins_the_contract_that_the_network_has(
    cluster: Cluster, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await cluster.host(5)
    known = (first.service.model,)
    source = DirectorySource(tiny.path)
    assert host_module.choose_contract(source, known, cluster.device) == "fp32"
    for fast in (True, False):
        device = replace(cluster.device, fast_bf16=fast)
        assert host_module.choose_contract(source, (), device) == "bf16"
    # Of another family, whose modules are the library's.
    monkeypatch.setattr(DirectorySource, "lean", False)
    assert host_module.choose_contract(source, (), replace(device, fast_bf16=True)) == "bf16"
    assert host_module.choose_contract(source, (), device) == "fp32"


async def test_a_host_does_not_join_a_contract_that_its_device_cannot_compute(
    cluster: Cluster, tiny: TinyModel
) -> None:
    source = DirectorySource(tiny.path)
    known = (host_module.reference(source, "int8"),)
    assert host_module.choose_contract(source, known, cluster.device) == "int8"
    gpu = replace(cluster.device, kind="cuda")
    assert host_module.choose_contract(source, known, gpu) == "bf16"
    cluster.device, cluster.contract = gpu, "int8"
    with pytest.raises(UsageError, match="int8 is computed on the CPU only"):
        await cluster.host()


async def test_without_a_cap_a_host_offers_the_memory_of_its_device(cluster: Cluster) -> None:
    cluster.device = replace(cluster.device, free=PROCESS_RESERVE + 2**20)
    host = await cluster.host(memory=None)
    (seen,) = (node for node in host.node.view().nodes if node.me)
    assert seen.capacity == int(2**20 * MEMORY_SHARE)


async def test_a_host_says_what_it_computes_with(cluster: Cluster) -> None:
    cluster.device = replace(cluster.device, threads=3)
    host = await cluster.host()
    told = [event.text for event in host.node.events]
    assert "computes with 3 threads in fp32 on cpu" in told


@pytest.mark.slow
async def test_load_is_reported(cluster: Cluster, tiny: TinyModel) -> None:
    host = await cluster.host()
    await say(cluster, tiny)
    sentinel = cluster.nodes[0]

    def seen() -> ModelRef | None:
        return next(node for node in sentinel.view().nodes if node.node == host.id.hex())

    await until(lambda: seen().tokens_per_s > 0)
    assert seen().kv_budget == host.service.stage.kv_budget
    # What is reported may be of the middle of the generation, after the prompt alone.
    await until(lambda: host.service.load.step_ms > 0)
