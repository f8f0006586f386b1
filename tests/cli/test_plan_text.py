"""What `plan`, `models --all` and `status` print: all of it, in lines that 80 columns hold."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from diffuse_core.cli.coverage_text import WIDTH, model_rows, standing_lines, variant_lines
from diffuse_core.cli.picture import Picture, neediest, placed
from diffuse_core.cli.plan_text import plan_json, plan_lines
from diffuse_core.domain.needs import Means
from diffuse_core.domain.observe import network_view
from diffuse_core.domain.planner import Plan, plan
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnknown, UsageError
from tests.domain.domain_samples import MODEL, SMOL, member, node

MIB = 2**20
MEANS = Means(own=node(9), capacity=160 * MIB, contracts=frozenset({"bf16"}))
FILES = msgspec.structs.replace(MODEL, id="my model", fingerprint="c" * 64)


def _made(picture: Picture) -> Plan:
    means = picture.means
    return plan(means.capacity, picture.model.shape, picture.held, own=means.own)


def test_a_plan_tells_what_it_changes_and_what_more_would() -> None:
    picture = placed(MODEL, (member(1, 0, 12), member(2, 18, 30)), MEANS)
    lines = plan_lines(picture, _made(picture))
    assert lines[0].startswith("smol (30 layers, bf16): would take layers ")
    text = " ".join(line.strip() for line in lines)
    assert "why: fills the gap 12:18 of 30" in text
    assert "changes: Incomplete -> Fragile, closes the gap 12:18" in text
    assert "more memory: adding " in text
    assert "more hosts: " in text
    assert all(len(line) <= WIDTH for line in lines)


def test_json_has_all_that_is_printed_and_the_keys_of_old() -> None:
    picture = placed(MODEL, (member(1, 0, 12), member(2, 18, 30)), MEANS)
    made = _made(picture)
    told = json.loads(msgspec.json.encode(plan_json(picture, made)))
    assert told["model"] == "smol"
    assert told["slice"] == [made.slice.start, made.slice.end]
    assert told["reason"] == made.reason
    assert told["bytes"] == made.bytes
    assert told["changes"]["before"] == "Incomplete"
    assert told["changes"]["after"] == "Fragile"
    assert told["changes"]["closes"] == [[12, 18]]
    assert (told["changes"]["min_before"], told["changes"]["min_after"]) == (0, 1)
    assert told["more_memory"][0]["extra_bytes"] > 0
    assert told["more_memory"][0]["text"].startswith("adding ")
    assert told["more_hosts"]["covered"] == 0
    assert told["more_hosts"]["robust"] >= 1
    assert told["already_here"] is None
    assert "ranking" not in told


def test_a_slice_that_the_node_here_holds_is_not_counted_twice() -> None:
    members = (member(1, 0, 20), member(9, 20, 30))
    picture = placed(MODEL, members, MEANS)
    assert picture.held == (Slice(0, 20),)
    lines = plan_lines(picture, _made(picture))
    assert lines[1].startswith("here: the node running here holds 20:30 of it already;")
    assert plan_json(picture, _made(picture))["already_here"] == Slice(20, 30)


def test_auto_shows_the_ranking_and_what_nobody_else_can_get() -> None:
    members = (member(1, 0, 20), member(2, 0, 30, model=FILES))
    picture = neediest(members, MEANS)
    assert picture.model == MODEL
    lines = plan_lines(picture, _made(picture))
    assert lines[0].startswith("models of this network")
    text = " ".join(line.strip() for line in lines)
    assert "1. smol in bf16: fills the gap" in text
    assert "2. my model in bf16: reinforces" in text
    assert "(only hosts that have its files can hold it)" in text
    assert all(len(line) <= WIDTH for line in lines)
    ranking = plan_json(picture, _made(picture))["ranking"]
    assert [need["id"] for need in ranking] == ["smol", "my model"]
    assert [need["fetched_as"] for need in ranking] == ["smol", None]


def test_auto_without_a_model_or_with_none_that_fits_is_an_error() -> None:
    with pytest.raises(ModelUnknown, match="no model on this network yet"):
        neediest((), MEANS)
    with pytest.raises(UsageError, match="no model of this network can be held here"):
        neediest((member(1, 0, 20),), msgspec.structs.replace(MEANS, capacity=MIB))


def test_standing_fits_80_columns_with_200_layers_and_many_hosts() -> None:
    shape = msgspec.structs.replace(SMOL, layers=200)
    large = msgspec.structs.replace(MODEL, id="organisation/a-model-of-many-layers", shape=shape)
    members = [
        member(number, 7 * number % 190, 7 * number % 190 + 1 + number % 9, model=large)
        for number in range(1, 60)
    ]
    members += [member(60 + n, n, n + 3, model=large, state="loading") for n in range(9)]
    (model,) = network_view(members, None, 0.0, 0.0, 2).models
    lines = standing_lines(model)
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) <= 10
    assert "is being loaded by 1 host" in " ".join(lines)
    assert model_rows([model])[1][0] == large.id


def test_one_id_in_several_contracts_is_told_once() -> None:
    other = msgspec.structs.replace(MODEL, contract="int8", fingerprint="d" * 64)
    members = [member(1, 0, 30), member(2, 0, 30, model=other), member(3, 0, 30, model=FILES)]
    view = network_view(members, None, 0.0, 0.0, 2)
    lines = variant_lines(view.models)
    assert " ".join(lines).count("share no route") == 1
    assert all(len(line) <= WIDTH for line in lines)


def test_a_picture_without_ranking_has_no_list() -> None:
    picture = replace(neediest((member(1, 0, 20),), MEANS), ranking=())
    assert not plan_lines(picture, _made(picture))[0].startswith("models of")
