"""Hosts on `auto` take what the network needs and they can get, and say what they wait for."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.slices import Slice
from diffuse_core.errors import UsageError
from diffuse_core.services import model_choice
from diffuse_core.services.model_choice import computed
from tests.services.named_models import REPO, told
from tests.services.tiny_model import make_tiny_model
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.services.cluster import Cluster
    from tests.services.named_models import Hub


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_choice, "SPREAD_S", 0.0)
    monkeypatch.setattr(model_choice, "LOOK_S", 0.02)


async def test_a_host_waits_for_a_model_and_fills_its_gap(
    cluster: Cluster, hub: Hub, on_auto: Callable
) -> None:
    await cluster.start_sentinel()
    host = await on_auto(5)
    waiting = "no model on this network yet; waiting for one"
    await until(lambda: told(host, waiting))
    assert host.service.phase_text() == waiting
    assert hub.asked == []
    cluster.asked = REPO
    first = await cluster.host(5)
    await cluster.settled(host)
    assert {first.service.slice, host.service.slice} == {Slice(0, 5), Slice(5, 10)}
    assert host.service.model == first.service.model
    assert told(host, f"chose {REPO} in fp32: fills the gap")
    assert sum(event.text == waiting for event in host.node.events) == 1


async def test_a_host_chooses_again_when_others_were_faster(
    cluster: Cluster, hub: Hub, on_auto: Callable
) -> None:
    hub.has["org/b"] = hub.has[REPO]
    await cluster.start_sentinel()
    for cluster.asked, layers in ((REPO, 5), ("org/b", 2)):
        await cluster.host(layers)
    gate = hub.gates[3] = threading.Event()
    host = await on_auto(5)
    await until(lambda: hub.asked[2:] == [REPO])
    cluster.asked = REPO
    await cluster.host(5)
    gate.set()
    await cluster.settled(host)
    # The gap of the first is closed meanwhile, that of the second is not.
    assert host.service.model.id == "org/b"
    assert host.service.slice.end - host.service.slice.start == 5


async def test_other_weights_of_the_same_name_are_left_alone(
    cluster: Cluster, hub: Hub, on_auto: Callable, tmp_path: Path
) -> None:
    await cluster.start_sentinel()
    cluster.asked = REPO
    await cluster.host(5)
    hub.has[REPO] = make_tiny_model(tmp_path / "other", context=64).path
    host = await on_auto()
    await until(lambda: told(host, "waiting for another, and trying again"))
    assert told(host, f"skips {REPO} in fp32: the network's has other ")
    assert host.service.slice is None
    assert hub.asked.count(REPO) == 2


async def test_a_model_that_cannot_be_got_is_tried_again_later(
    cluster: Cluster, hub: Hub, on_auto: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_choice, "RETRY_S", (0.05, 0.1))
    await cluster.start_sentinel()
    cluster.asked = REPO
    await cluster.host(5)
    path = hub.has.pop(REPO)
    host = await on_auto(5)
    await until(lambda: hub.asked.count(REPO) >= 4)
    assert sum("the hub has no model" in event.text for event in host.node.events) == 1
    hub.has[REPO] = path
    await cluster.settled(host)


async def test_a_name_that_only_files_have_is_not_looked_for(
    cluster: Cluster, hub: Hub, on_auto: Callable, tmp_path: Path
) -> None:
    await cluster.start_sentinel()
    odd = tmp_path / "a..b"
    make_tiny_model(odd)
    cluster.asked = str(odd)
    await cluster.host(5)
    host = await on_auto()
    await until(lambda: told(host, "its name is none of the hub"))
    assert hub.asked == []


async def test_a_host_too_small_for_every_model_says_so_and_waits(
    cluster: Cluster, hub: Hub, on_auto: Callable
) -> None:
    await cluster.start_sentinel()
    cluster.asked = REPO
    await cluster.host(5)
    host = await on_auto(memory=1000)
    await until(lambda: told(host, "no model of this network can be held here (org/tiny: memory"))
    assert not host.life.done()
    assert hub.asked == [REPO]


async def test_the_network_s_contract_is_taken_unless_another_is_asked_for(
    cluster: Cluster, hub: Hub, on_auto: Callable
) -> None:
    await cluster.start_sentinel()
    cluster.asked, cluster.contract = REPO, "bf16"
    await cluster.host(5)
    cluster.contract = "fp32"
    other = await on_auto(5)
    await until(lambda: told(other, "in bf16, which is not computed here"))
    cluster.contract = None
    host = await on_auto(5)
    await cluster.settled(host)
    assert host.service.model.contract == "bf16"
    assert other.service.model is None


async def test_a_contract_that_the_device_lacks_is_refused_at_once(
    cluster: Cluster, on_auto: Callable
) -> None:
    await cluster.start_sentinel()
    cluster.device, cluster.contract = replace(cluster.device, kind="cuda"), "int4"
    host = await on_auto()
    await until(host.life.done)
    cluster.hosts.remove(host)
    with pytest.raises(UsageError, match="int4 is computed on the CPU only"):
        host.life.result()


def test_which_contracts_may_be_joined() -> None:
    assert computed("cpu", None) == {"fp32", "bf16", "int8", "int4"}
    assert computed("cuda", None) == {"fp32", "bf16"}
    assert computed("cpu", "int8") == {"int8"}
    assert computed("cuda", "int8") == set()
