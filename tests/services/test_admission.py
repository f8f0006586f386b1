"""Who may generate what: refusals with reasons, replicas that step in, stages that die."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec
import pytest

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.domain import liveness
from diffuse_core.domain.records import Holding
from diffuse_core.domain.session_memory import session_bytes
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.errors import ModelIncomplete, ModelUnknown, Refused, StagesLost
from diffuse_core.services.host import reference
from tests.services.cluster import PLENTY
from tests.services.hearing import heard
from tests.services.tiny_model import CONTEXT, LAYERS, ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.records import ModelRef
    from tests.services.cluster import Cluster
    from tests.services.tiny_model import TinyModel

QUICK_S = 3.0


def ask(length: int = 13, count: int = 12, model: str = "tiny") -> GenerateRequest:
    return GenerateRequest(model=model, raw=words(length), max_tokens=count, ignore_eos=True)


def model_of(cluster: Cluster) -> ModelRef:
    return cluster.hosts[0].service.model


def sessions_of_memory(model: ModelRef, part: Slice, positions: int) -> int:
    """Bytes for a slice and a session of so many positions."""
    return model.shape.weight_bytes(part) + session_bytes(model.shape, "fp32", part, positions)


async def test_an_unknown_model_is_named_with_those_that_are_known(split: Callable) -> None:
    cluster = await split(1)
    with pytest.raises(ModelUnknown, match=r"'gpt-9'.*on this network: tiny") as raised:
        await (await cluster.client()).whole(ask(model="gpt-9"))
    assert raised.value.exit_code == 3


async def test_an_incomplete_model_names_what_is_missing(cluster: Cluster) -> None:
    await cluster.host(4)
    await cluster.host(4)
    client = await cluster.client()
    with pytest.raises(ModelIncomplete, match=r"layers 4:6 of 10 are held by no live node") as got:
        await client.whole(ask())
    assert got.value.exit_code == 4


async def test_a_model_is_complete_again_when_the_gap_is_filled(
    cluster: Cluster, tiny: TinyModel
) -> None:
    first = await cluster.host(5)
    with pytest.raises(ModelIncomplete, match="layers 5:10 of 10"):
        await first.client.whole(ask())
    await cluster.host(5)
    _, tokens, _ = await first.client.whole(ask())
    assert tokens == tiny.says(ids(13), 12, ignore_eos=True)


async def test_no_room_for_kv_is_refused_with_figures(cluster: Cluster, tiny: TinyModel) -> None:
    await cluster.host()
    whole = Slice(0, LAYERS)
    # Room for one session of the whole context, which every host must have, and half of one more.
    room = sessions_of_memory(model_of(cluster), whole, CONTEXT * 3 // 2)
    await cluster.leave(cluster.hosts.pop())
    host = await cluster.host(memory=room)
    client = await cluster.client()
    async with aclosing(client.generate(ask(13, 100))) as stream:
        await heard(stream, 2)
        with pytest.raises(
            Refused, match=r"declined: 113 positions need .* MiB of KV and the like;"
        ) as got:
            await client.whole(ask(13, 100))
        assert got.value.reason == "memory"
        assert got.value.exit_code == 6
        assert host.service.stage.sessions == 1
        _, tokens, _ = await client.whole(ask(13, 20))
        assert tokens == tiny.says(ids(13), 20, ignore_eos=True)
    await host.idle()
    await client.whole(ask(13, 100))


async def test_a_refusal_sends_the_session_to_a_replica(cluster: Cluster, tiny: TinyModel) -> None:
    first, second = await cluster.host(), await cluster.host()
    client = await cluster.client()
    for host in (first, second):
        host.service.stage.kv_budget = 0
        for _ in range(3):
            _, tokens, finished = await client.whole(ask())
            assert tokens == tiny.says(ids(13), 12, ignore_eos=True)
            other = second if host is first else first
            assert [step.node for step in finished.route] == [other.id.hex()]
        host.service.stage.kv_budget = PLENTY
    first.service.stage.kv_budget = second.service.stage.kv_budget = 10
    with pytest.raises(Refused, match=r"no replica took the session.*at most 0\."):
        await client.whole(ask())


async def test_a_leaving_stage_takes_nothing_new(split: Callable) -> None:
    cluster = await split(2)
    cluster.hosts[1].service.stage.drain()
    with pytest.raises(Refused, match="leaving") as got:
        await (await cluster.client()).whole(ask())
    assert got.value.reason == "leaving"
    for host in cluster.hosts:
        await host.idle()


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.parametrize("orderly", [True, False])
async def test_a_stage_that_dies_ends_the_generation_quickly(
    split: Callable, tiny: TinyModel, victim: int, *, orderly: bool
) -> None:
    cluster = await split(3)
    client = await cluster.client()
    lost = cluster.hosts[victim]
    async with asyncio.timeout(QUICK_S), aclosing(client.generate(ask(13, 100))) as stream:
        told = await heard(stream, 10)
        if orderly:
            await cluster.leave(lost)
        else:
            cluster.crash(lost)
        with pytest.raises(StagesLost, match="ask again") as got:
            told += await heard(stream, 90)
    assert got.value.exit_code == 7
    assert tuple(told) == tiny.says(ids(13), 100, ignore_eos=True)[: len(told)]
    for host in cluster.hosts:
        if host is not lost:
            await host.idle()


async def test_a_stage_that_leaves_over_sockets(split: Callable) -> None:
    cluster = await split(3, sockets=True)
    client = await cluster.client()
    lost = cluster.hosts[1]
    async with asyncio.timeout(QUICK_S), aclosing(client.generate(ask(13, 100))) as stream:
        await heard(stream, 10)
        await cluster.leave(lost)
        with pytest.raises(StagesLost, match="ask again"):
            await heard(stream, 90)
    for host in cluster.hosts:
        if host is not lost:
            await host.idle()


async def test_the_only_stage_dies(split: Callable) -> None:
    """No other stage is there to tell."""
    cluster = await split(1)
    client = await cluster.client()
    async with asyncio.timeout(QUICK_S), aclosing(client.generate(ask(13, 100))) as stream:
        await heard(stream, 3)
        cluster.crash(cluster.hosts[0])
        with pytest.raises(StagesLost, match="ended"):
            await heard(stream, 97)


async def test_a_dead_host_is_replaced_before_the_first_token(
    cluster: Cluster, tiny: TinyModel
) -> None:
    """The client still believes in it: what it pulled is older than the crash."""
    replicas = [await cluster.host() for _ in range(3)]
    clients = [await cluster.client() for _ in range(4)]
    cluster.crash(replicas[0])
    cluster.crash(replicas[2])
    for client in clients:
        async with asyncio.timeout(QUICK_S):
            _, tokens, finished = await client.whole(ask())
        assert tokens == tiny.says(ids(13), 12, ignore_eos=True)
        assert finished.route[0].node == replicas[1].id.hex()


async def test_a_host_that_dies_in_the_prefill_is_replaced(
    cluster: Cluster, tiny: TinyModel
) -> None:
    class Crashing:
        """An executor whose host vanishes when its first prompt comes."""

        def __init__(self, *given: object) -> None:
            self._inner = load_slice(*given)

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        def start(self, step: object) -> object:
            if not crashed:
                crashed.append(step)
                loop.call_soon_threadsafe(cluster.crash, doomed)
            return self._inner.start(step)

    loop = asyncio.get_running_loop()
    crashed: list[object] = []
    await cluster.host(5)
    doomed = await cluster.host(5, load=Crashing)
    second = await cluster.host(5, wait=False)
    third = await cluster.host(5)
    await cluster.settled(second, third)
    client = await cluster.client()
    async with asyncio.timeout(QUICK_S):
        while not crashed:
            _, tokens, finished = await client.whole(ask())
            assert tokens == tiny.says(ids(13), 12, ignore_eos=True)
    assert any("was lost" in event for event in finished.events)
    for host in cluster.hosts:
        if host is not doomed:
            await host.idle()


async def test_the_last_replica_gone_says_who_did_not_answer(cluster: Cluster) -> None:
    host = await cluster.host()
    client = await cluster.client()
    # Not the bundle is what fails to be had.
    await client.whole(ask())
    cluster.crash(host)
    with pytest.raises(ModelIncomplete, match=rf"without {host.id.hex()[:8]}"):
        await client.whole(ask())


@pytest.mark.slow
async def test_a_full_node_client_sees_a_crash_and_says_incomplete(
    split: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "PROBE_INTERVAL_S", 0.2)
    monkeypatch.setattr(liveness, "PROBE_TIMEOUT_S", 0.1)
    cluster = await split(2)
    first, second = cluster.hosts
    await first.client.whole(ask())
    cluster.crash(second)
    with pytest.raises(ModelIncomplete, match="5:10"):
        await first.client.whole(ask())
    await until(lambda: not [m for m in first.node.view().models if m.servable])
    with pytest.raises(ModelIncomplete, match="layers 5:10 of 10 are held by no live node"):
        await first.client.whole(ask())


async def liar(cluster: Cluster, part: Slice, **lies: object) -> None:
    """A node whose record says what a host's says, but for some lies."""
    node, _ = await cluster.start_node("host")
    true = model_of(cluster)
    node.hold(Holding(msgspec.structs.replace(true, **lies), part, "ready"))
    await until(
        lambda: all(
            any(member.record.node == node.id for member in other.members())
            for other in cluster.nodes
        )
    )


async def test_a_lying_record_does_not_hide_the_model(split: Callable, tiny: TinyModel) -> None:
    """The same fingerprint with another bundle, or another shape, is another model."""
    cluster = await split(2)
    true = model_of(cluster)
    await liar(cluster, Slice(0, 5), bundle="0" * 64)
    await liar(cluster, Slice(0, 10), bundle="f" * 64)
    await liar(cluster, Slice(0, 5), shape=msgspec.structs.replace(true.shape, context=10))
    for client in (await cluster.client(), cluster.hosts[0].client):
        _, tokens, finished = await client.whole(ask())
        assert tokens == tiny.says(ids(13), 12, ignore_eos=True)
        honest = {host.id.hex() for host in cluster.hosts}
        assert {step.node for step in finished.route} <= honest


async def test_a_replica_that_was_never_there_is_passed_over(
    split: Callable, tiny: TinyModel
) -> None:
    """Records may name addresses that are none."""
    cluster = await split(1)
    node, _ = await cluster.start_node("host")
    node._addresses = ("nowhere", ":::", "mem:9999")
    node.hold(Holding(model_of(cluster), Slice(0, LAYERS), "ready"))
    await cluster.settled()
    await until(lambda: len(cluster.nodes[0].members()) == 3)
    for _ in range(4):
        client = await cluster.client()
        _, tokens, _ = await client.whole(ask())
        assert tokens == tiny.says(ids(13), 12, ignore_eos=True)


async def test_a_host_that_does_not_hold_anything_yet_declines_at_once(
    cluster: Cluster, tiny: TinyModel
) -> None:
    """A host that came back is loading while clients still believe it ready."""
    hosts = [await cluster.host(), await cluster.host()]
    clients = [await cluster.client() for _ in range(4)]
    await hosts[0].service._serving.unload()
    for client in clients:
        async with asyncio.timeout(QUICK_S):
            _, tokens, _ = await client.whole(ask())
        assert tokens == tiny.says(ids(13), 12, ignore_eos=True)


def test_reference_is_what_records_say(tiny: TinyModel) -> None:
    ref = reference(DirectorySource(tiny.path), "fp32")
    assert (ref.id, ref.shape.layers, ref.shape.context) == ("tiny", LAYERS, CONTEXT)
