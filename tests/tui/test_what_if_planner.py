"""What the app answers is what `diffuse plan` says of the same network."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import msgspec
import pytest

from diffuse_core.cli.picture import placed
from diffuse_core.cli.plan_text import plan_lines
from diffuse_core.domain.healing import moves
from diffuse_core.domain.identity import Identity, node_text
from diffuse_core.domain.members import Member
from diffuse_core.domain.needs import Means
from diffuse_core.domain.observe import network_view
from diffuse_core.domain.planner import HostSummary, plan
from diffuse_core.domain.records import Holding, ModelRef, Record
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice
from diffuse_tui.presenter.what_if_host import what_if_host
from diffuse_tui.presenter.what_if_node import what_if_node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.view import NetworkView

MIB = 2**20
SHAPE = ModelShape(
    layers=30,
    hidden=576,
    vocab=49152,
    context=8192,
    layer_bytes=7_080_192,
    embedding_bytes=56_623_104,
    head_bytes=56_624_256,
    kv_bytes=768,
    tied=True,
)
MODEL = ModelRef(id="smol", fingerprint="a" * 64, contract="bf16", shape=SHAPE, bundle="b" * 64)
MIXED = msgspec.structs.replace(
    MODEL,
    shape=msgspec.structs.replace(
        SHAPE, kinds=(3_000_000, 7_080_192), kind_of=bytes(n % 3 > 0 for n in range(30))
    ),
)
ME = Identity(bytes([9]) * 32).node


def member(number: int, part: Slice | None, model: ModelRef, state: str = "ready") -> Member:
    record = Record(
        node=Identity(bytes([number]) * 32).node,
        sequence=1,
        role="host" if part else "client",
        version="1",
        capacity=300 * MIB,
        holding=Holding(model, part, state) if part else None,
    )
    return Member(record=record, liveness="alive", heard_at=0.0)


NETWORKS = {
    "a gap": [(0, 12), (18, 30)],
    "fragile": [(0, 30), (0, 12), (20, 30)],
    "robust": [(0, 30), (0, 30), (3, 17)],
    "pieces": [(0, 4), (2, 9), (9, 11), (20, 22)],
}


def network(name: str, model: ModelRef) -> tuple[Sequence[Member], NetworkView]:
    parts = [Slice(*ends) for ends in NETWORKS[name]]
    members = [member(number, part, model) for number, part in enumerate(parts, 1)]
    members.append(member(7, Slice(18, 21), model, "loading"))
    members.append(member(9, None, model))
    return members, network_view(members, ME, 0.0, 0.0, 2)


@pytest.mark.parametrize("size", [40 * MIB, 150 * MIB, 2 * 10**9])
@pytest.mark.parametrize("model", [MODEL, MIXED], ids=["alike", "mixed"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_host_that_comes_would_do_what_plan_says(name: str, model: ModelRef, size: int) -> None:
    members, view = network(name, model)
    means = Means(own=ME, capacity=size, contracts=frozenset({"bf16"}))
    picture = placed(model, members, means)
    made = plan(size, model.shape, picture.held, own=ME, model=model.id)
    said = " ".join(" ".join(line.split()) for line in plan_lines(picture, made))
    answer = what_if_host(view, view.models[0], size)
    told = {"why": "why", "changes": "changes", "memory": "more memory", "hosts": "more hosts"}
    assert answer.headline.startswith(f"it would take layers {made.slice} of 30; ")
    assert f"would take layers {made.slice} why" in said
    for label, text in answer.facts:
        if label in told:
            assert f"{told[label]}: {text}" in said, textwrap.shorten(said, 600)
    assert said.count("more memory:") == sum(label == "memory" for label, _ in answer.facts)


@pytest.mark.parametrize("name", NETWORKS)
def test_who_takes_over_is_who_healing_names(name: str) -> None:
    members, view = network(name, MODEL)
    for gone in members[:3]:
        answer = what_if_node(view, view.models[0], {node_text(gone.record.node)})
        rest = [
            HostSummary(
                one.record.node, one.record.holding.slice, one.record.holding.state, 300 * MIB
            )
            for one in members
            if one is not gone and one.record.holding is not None
        ]
        named = moves(rest, SHAPE)
        (told,) = [text for label, text in answer.facts if label == "next"]
        for move in named:
            assert f"{node_text(move.node)[:8]} from" in told
            assert f"to {move.plan.slice}" in told
