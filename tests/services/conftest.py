"""The tiny model, networks of it, and short waits so that a test takes no second."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
import torch

from diffuse_core.adapters.models.store import FileModelStore
from diffuse_core.domain import gossip
from diffuse_core.services import (
    generation,
    host,
    observer,
    placement,
    roll_call,
    run,
    session_terms,
    stage,
    stage_run,
)
from diffuse_core.services.model_choice import AUTO
from tests.services.cluster import Cluster, start_split
from tests.services.intruder import CREDITS, honest_session
from tests.services.named_models import REPO, Hub
from tests.services.scheduler_desk import Desk, open_desk
from tests.services.tiny_model import TinyModel, make_tiny_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tests.services.cluster import Host


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(placement, "SETTLE_S", 0.04)
    monkeypatch.setattr(host, "REPORT_S", 0.05)
    monkeypatch.setattr(gossip, "GOSSIP_INTERVAL_S", 0.01)
    monkeypatch.setattr(generation, "MOST_GRACE_S", 0.3)
    monkeypatch.setattr(generation, "LOOK_S", 0.05)
    monkeypatch.setattr(observer, "FRESH_S", 0.04)
    monkeypatch.setattr(stage, "SWEEP_S", 0.05)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of several pieces and messages, a ring that soon waits, and as patient as ever."""
    monkeypatch.setattr(stage_run, "PREFILL_ROWS", 16)
    monkeypatch.setattr(session_terms, "MAX_ROWS", 16)
    monkeypatch.setattr(run, "CREDITS", 8)
    monkeypatch.setattr(generation, "MOST_GRACE_S", 3600.0)
    monkeypatch.setattr(generation, "LOOK_S", 1.0)


@pytest.fixture
def soon_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses are, in an answer that few tokens are granted ahead."""
    monkeypatch.setattr(run, "CREDITS", 8)
    monkeypatch.setattr(roll_call, "WATCH_S", 0.1)
    monkeypatch.setattr(generation, "MOST_GRACE_S", 10.0)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as entered:
        yield entered


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async for made in open_desk():
        yield made


@pytest.fixture
def cluster(stack: AsyncExitStack, tiny: TinyModel, tmp_path: Path) -> Cluster:
    """A network without hosts yet."""
    return Cluster(stack, tiny, tmp_path)


@pytest.fixture
def split(stack: AsyncExitStack, tiny: TinyModel, tmp_path: Path) -> Callable:
    """Start a network whose routes have so many stages."""

    async def start(stages: int, **options: bool) -> Cluster:
        return await start_split(stack, tiny, tmp_path, stages, **options)

    return start


@pytest.fixture
async def pair(split: Callable, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Two stages, and so few credits that the ring of a session soon rests."""
    monkeypatch.setattr(run, "CREDITS", CREDITS)
    return await split(2)


@pytest.fixture
async def running(pair: Cluster, tiny: TinyModel) -> AsyncIterator[bytes]:
    """The id of an honest session, which must go on as if nothing had been."""
    async for session in honest_session(pair, tiny):
        yield session


@pytest.fixture
def hub(cluster: Cluster, tiny: TinyModel) -> Hub:
    """A hub that has the tiny model, from which every host of the cluster opens models."""
    hub = Hub()
    hub.has[REPO] = tiny.path
    cluster.store = FileModelStore(lambda _: cluster.directory, hub.open)
    return hub


@pytest.fixture
def on_auto(cluster: Cluster) -> Callable:
    """Start a host that leaves the choice of its model to the network."""

    async def start(*given: int, **more: object) -> Host:
        cluster.asked = AUTO
        return await cluster.host(*given, wait=False, **more)

    return start
