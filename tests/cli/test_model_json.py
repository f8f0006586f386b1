"""What scripts read of a model: the same fields whatever screens are told besides."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest

from diffuse_core import wiring
from diffuse_core.cli import run
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.members import Member
from diffuse_core.domain.observe import network_view
from diffuse_core.domain.records import Holding, ModelRef, Record
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import ModelView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from diffuse_core.domain.view import NetworkView

SHAPE = ModelShape(
    layers=4,
    hidden=8,
    vocab=8,
    context=64,
    layer_bytes=200,
    embedding_bytes=50,
    head_bytes=50,
    kv_bytes=1,
    kinds=(100, 200),
    kind_of=b"\0\1\0\1",
)


def network() -> NetworkView:
    model = ModelRef(
        id="mixed", fingerprint="f" * 64, contract="bf16", shape=SHAPE, bundle="b" * 64
    )
    who = Identity(bytes(32)).node
    holding = Holding(model, Slice(0, 4), "ready")
    record = Record(node=who, sequence=1, role="host", version="1", holding=holding)
    member = Member(record=record, liveness="alive", heard_at=0.0)
    return network_view((member,), None, 0.0, 0.0, 2)


@pytest.fixture(autouse=True)
def _network(monkeypatch: pytest.MonkeyPatch) -> None:
    class Observer:
        def view(self) -> NetworkView:
            return network()

    @asynccontextmanager
    async def observe(*_: object) -> AsyncIterator[tuple[Observer, None]]:
        yield Observer(), None

    monkeypatch.setattr(wiring, "observe", observe)


@pytest.mark.parametrize("command", ["models", "status"])
def test_the_table_of_sizes_is_no_part_of_it(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert network().models[0].shape == SHAPE
    assert run([command, "--json", "--state-dir", str(tmp_path)]) == 0
    (told,) = json.loads(capsys.readouterr().out)["models"]
    assert set(told) == {one.name for one in msgspec.structs.fields(ModelView)} - {"shape"}
    assert told["layers"] == 4
