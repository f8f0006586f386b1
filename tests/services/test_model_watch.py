"""Hosts on `auto` that serve go where another model has a gap: one of them, and only then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain import directory, publisher
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.services import model_choice, model_watch, placement
from tests.services.named_models import REPO, told
from tests.services.tiny_model import ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.services.cluster import Cluster, Host
    from tests.services.named_models import Hub
    from tests.services.tiny_model import TinyModel

OTHER = "org/other"
HALF = 5


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_choice, "SPREAD_S", 0.0)
    monkeypatch.setattr(model_choice, "LOOK_S", 0.02)
    monkeypatch.setattr(model_watch, "LOOK_S", 0.02)
    monkeypatch.setattr(model_watch, "PATIENCE_S", 0.1)
    # In real life a Host has news of itself every few minutes, not ten in a second.
    monkeypatch.setattr(publisher, "PUBLISH_BURST", 60)
    monkeypatch.setattr(directory, "UPDATE_BURST", 80)
    # All at once: nothing but the claims keeps Hosts apart.
    monkeypatch.setattr(model_watch, "SPREAD_S", 0.0)


@pytest.fixture
async def roamers(cluster: Cluster, hub: Hub, on_auto: Callable) -> Callable:
    """Start hosts on auto in a model that stays Robust without them."""

    async def start(count: int) -> list[Host]:
        hub.has[OTHER] = hub.has[REPO]
        await cluster.start_sentinel()
        cluster.asked = REPO
        for _ in range(2):
            await cluster.host()
        hosts = [await on_auto() for _ in range(count)]
        await cluster.settled(*hosts)
        return hosts

    return start


async def _gap(cluster: Cluster) -> Host:
    cluster.asked = OTHER
    return await cluster.host(HALF)


def _models(*hosts: Host) -> list[str]:
    return sorted(host.service.model.id for host in hosts if host.service.ready.is_set())


async def test_a_host_leaves_a_robust_model_for_the_gap_of_another(
    cluster: Cluster, roamers: Callable, tiny: TinyModel
) -> None:
    (host,) = await roamers(1)
    assert host.service.model.id == REPO
    first = await _gap(cluster)
    await until(lambda: _models(host) == [OTHER])
    await cluster.settled(host)
    assert first.service.slice.start == 0 or host.service.slice.start == 0
    assert told(host, f"leaves {REPO} for {OTHER}: fills the gap")
    client = await cluster.client()
    request = GenerateRequest(model=OTHER, raw=words(6), max_tokens=4, ignore_eos=True)
    tokens = [
        token
        async for event in client.generate(request)
        for token in getattr(event, "token_ids", ())
    ]
    assert tuple(tokens) == tiny.says(ids(6), 4, ignore_eos=True)
    (view,) = (model for model in cluster.nodes[0].view().models if model.id == REPO)
    assert view.state == "Robust"


@pytest.mark.slow
async def test_of_several_that_could_go_exactly_one_does(
    cluster: Cluster, roamers: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    # News take a while to be everywhere on a busy machine.
    monkeypatch.setattr(placement, "SETTLE_S", 0.25)
    hosts = await roamers(3)
    await _gap(cluster)
    await until(lambda: _models(*hosts) == sorted([OTHER, REPO, REPO]))
    sentinel = cluster.nodes[0]

    def settled() -> bool:
        held = [node.model for node in sentinel.view().nodes if node.state == "ready"]
        return sorted(held) == sorted([OTHER, OTHER, *[REPO] * 4])

    await until(settled)
    # Long enough for any other to have followed.
    await asyncio.sleep(1.5)
    assert settled()
    assert _models(*hosts) == sorted([OTHER, REPO, REPO])


async def test_a_host_stays_when_the_other_model_cannot_be_got(
    cluster: Cluster, roamers: Callable, tiny: TinyModel, tmp_path: Path
) -> None:
    (host,) = await roamers(1)
    (tmp_path / "lonely").symlink_to(tiny.path)
    cluster.asked = str(tmp_path / "lonely")
    await cluster.host(HALF)
    await until(lambda: told(host, "skips lonely in fp32: the hub has no model lonely"))
    assert _models(host) == [REPO]
    assert host.service.slice == Slice(0, 10)


async def test_a_host_that_lost_its_claim_says_again_what_it_holds(
    cluster: Cluster, roamers: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = await roamers(1)
    claims = []

    def lost(*given: object, **more: object) -> bool:
        claims.append(given)
        return False

    monkeypatch.setattr(model_watch, "settle", lost)
    await _gap(cluster)
    await until(lambda: claims)
    await cluster.settled(host)
    assert _models(host) == [REPO]


async def test_a_host_that_is_stopped_while_it_watches_ends(
    cluster: Cluster, roamers: Callable
) -> None:
    (host,) = await roamers(1)
    await host.service.leave()
    await until(host.life.done)
    host.life.result()
    cluster.hosts.remove(host)
