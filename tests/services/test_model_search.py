"""Hosts on `auto` get to a model that can be had, whatever records name, and by names only."""

from __future__ import annotations

import hashlib
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest

from diffuse_core.domain.members import Member
from diffuse_core.domain.needs import MAX_MODELS, Means
from diffuse_core.domain.records import Holding, Load, ModelRef, Record
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnknown
from diffuse_core.services import model_choice
from diffuse_core.services.model_choice import MAX_FAILED, MAX_TOLD, ModelSearch
from diffuse_core.services.model_watch import ModelWatch

if TYPE_CHECKING:
    from pathlib import Path

HONEST = "honest/model"
SHAPE = ModelShape(
    layers=4,
    hidden=64,
    vocab=100,
    context=128,
    layer_bytes=10,
    embedding_bytes=0,
    head_bytes=0,
    kv_bytes=1,
)


def holder(name: str, sessions: int = 0) -> Member:
    digest = hashlib.sha256(name.encode())
    model = ModelRef(
        id=name, fingerprint=digest.hexdigest(), contract="fp32", shape=SHAPE, bundle="0" * 64
    )
    record = Record(
        node=digest.digest(),
        sequence=1,
        role="host",
        version="1",
        capacity=1,
        holding=Holding(model, Slice(0, 2), "ready"),
        load=Load(sessions=sessions),
    )
    return Member(record=record, liveness="alive", heard_at=0.0)


class Bench:
    """A search on a clock that only its waits move, in front of a hub that has one model."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, members: list[Member]) -> None:
        self.now = 0.0
        self.asked: list[str] = []
        self.notes: list[str] = []
        self.members = members
        monkeypatch.setattr(model_choice.asyncio, "sleep", self.sleep)
        monkeypatch.setattr(model_choice, "reference", lambda source, _: source)
        node = SimpleNamespace(
            members=lambda: self.members,
            clock=SimpleNamespace(monotonic=lambda: self.now),
            note=lambda _, text: self.notes.append(text),
        )
        means = Means(own=bytes(32), capacity=2**30, contracts=frozenset({"fp32"}))
        self.search = ModelSearch(node, self, means, lambda _: None, lambda _: None)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > 3600:
            raise TimeoutError

    def open(self, name: str, _progress: object) -> object:
        self.asked.append(name)
        for member in self.members:
            if name == HONEST == member.record.holding.model.id:
                return member.record.holding.model
        raise ModelUnknown(f"the hub has no model {name}")

    async def found(self) -> str:
        _, model = await self.search.find()
        return model.id


async def test_names_that_nobody_can_get_cost_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    liars = [holder(f"/liar{number}", 2**31) for number in range(300)]
    bench = Bench(monkeypatch, [*liars, holder(HONEST)])
    assert await bench.found() == HONEST
    assert bench.now == 0.0
    assert bench.asked == [HONEST]
    assert len(bench.notes) <= MAX_TOLD + 1


async def test_what_failed_comes_after_all_that_was_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_choice, "RETRY_S", (0.5, 600.0))
    liars = [holder(f"liar/{number}", 2**31) for number in range(40)]
    bench = Bench(monkeypatch, [*liars, holder(HONEST)])
    assert await bench.found() == HONEST
    assert len(set(bench.asked)) == len(bench.asked)
    assert bench.now <= len(liars)


async def test_pauses_grow_and_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_choice, "LOOK_S", 5.0)
    bench = Bench(monkeypatch, [holder(f"liar/{number}") for number in range(10)])
    with pytest.raises(TimeoutError):
        await bench.search.find()
    # In an hour: at 0, 15, 45, 105, 225, 465, 945 s and then every ten minutes.
    counts = Counter(bench.asked)
    assert len(counts) == 10
    assert max(counts.values()) <= 11
    assert MAX_FAILED > MAX_MODELS


async def test_models_that_turn_up_while_files_are_read_do_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(monkeypatch, [holder(HONEST)])
    plain = bench.open

    def slow(name: str, progress: object) -> object:
        many = [holder(f"liar/{len(bench.asked)}-{number}") for number in range(20)]
        bench.members = [*many, holder(HONEST)]
        return plain(name, progress)

    bench.open = slow
    assert await bench.found() == HONEST
    assert bench.asked == [HONEST]


async def test_no_file_of_this_machine_is_opened_for_a_name_from_the_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "honest").mkdir()
    (tmp_path / HONEST).symlink_to(tmp_path / "nowhere")
    (tmp_path / "subdir").mkdir()
    bench = Bench(monkeypatch, [])
    for name in (HONEST, "subdir", "x.gguf", "org/x.gguf", "auto", "../x"):
        model = holder(name).record.holding.model
        assert await bench.search.open(model, lambda _: None) is None
        assert model in bench.search.passed
    assert bench.asked == []
    assert any("is a path here" in text for text in bench.notes)


async def test_of_too_many_failures_the_oldest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_choice, "MAX_FAILED", 3)
    bench = Bench(monkeypatch, [])
    refs = [holder(f"liar/{number}").record.holding.model for number in range(5)]
    for ref in refs:
        assert await bench.search.open(ref, lambda _: None) is None
    assert bench.search.failed == set(refs[2:])


def test_who_serves_looks_at_what_failed_last(monkeypatch: pytest.MonkeyPatch) -> None:
    served, failed, untried = holder("org/served"), holder("org/failed"), holder(HONEST)
    current = served.record.holding.model
    own = msgspec.structs.replace(served.record.holding, slice=Slice(0, 4))
    means = Means(own=bytes(32), capacity=2**30, contracts=frozenset({"fp32"}), target_replicas=1)
    whole = msgspec.structs.replace(
        served, record=msgspec.structs.replace(served.record, holding=own)
    )
    # Two hold what failed, so that it would come first.
    twin = msgspec.structs.replace(
        failed, record=msgspec.structs.replace(failed.record, node=bytes([7]) * 32)
    )
    bench = Bench(monkeypatch, [whole, failed, twin, untried])
    node = SimpleNamespace(holding=own, members=lambda: bench.members)
    search = SimpleNamespace(failed=frozenset(), passed=frozenset())
    watch = ModelWatch(node, means, search)
    assert watch._need(current).model.id == "org/failed"
    search.failed = frozenset({failed.record.holding.model})
    assert watch._need(current).model.id == HONEST
    bench.members = bench.members[:3]
    assert watch._need(current).model.id == "org/failed"
    search.passed = search.failed
    assert watch._need(current) is None
