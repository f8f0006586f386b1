"""The command `plan`: what this machine would take, why, and what that would change."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.common import (
    chosen_contract,
    chosen_device,
    common,
    find_bootstrap,
    holding,
    not_empty,
    print_json,
    run_until_done,
    set_logging,
)
from diffuse_core.cli.terminal import Bar
from diffuse_core.domain.sizes import parse_size
from diffuse_core.settings import running_node, size_text, state_dir

if TYPE_CHECKING:
    from diffuse_core.cli.picture import Picture
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.planner import Plan
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.errors import ModelUnknown
    from diffuse_core.model_ports import ModelSource, Progress
    from diffuse_core.services.devices import Device
    from diffuse_core.services.observer import Observer

BYTES_WORDS = {
    "weights": "weights of the layers",
    "kv_reserve": "room for KV cache",
    "total": "needed in all",
    "capacity": "may be taken",
}


@click.command()
@click.option(
    "--model",
    required=True,
    metavar="M",
    callback=not_empty,
    help="A model on the network or on the hub, a file or a directory; `auto` for the model "
    "of the network that needs this machine most.",
)
@holding
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@common
def plan(as_json: bool, **given: Any) -> None:
    """Print the slice this machine would take, why, what it weighs and what it changes.

    Also what more memory, or more machines like this one, would change. With `--model auto` the
    network's models are ranked by how much they need this machine. What is set for `diffuse host`
    counts here as well.

    \b
    diffuse plan --model demo --memory 150MiB
    diffuse plan --model auto --bootstrap 192.168.1.20:9440
    diffuse plan --model ./model.gguf --dtype int4 --json
    """
    set_logging(given["log_level"], given["log_format"])
    given["is_path"] = Path(given["model"]).exists()
    picture = run_until_done(_picture(given))
    from diffuse_core.cli.plan_text import plan_json, plan_lines
    from diffuse_core.domain.planner import plan as make_plan

    means = picture.means
    made = make_plan(
        means.capacity,
        picture.model.shape,
        picture.held,
        max_layers=means.max_layers,
        own=means.own,
        target_replicas=means.target_replicas,
        model=picture.model.id,
    )
    if as_json:
        print_json(plan_json(picture, made))
        return
    for line in plan_lines(picture, made):
        click.echo(line)
    _print_bill(made)


def _print_bill(made: Plan) -> None:
    for name, size in made.bytes.items():
        click.echo(f"  {BYTES_WORDS.get(name, name):<24}{size_text(size):>12}")


async def _picture(given: dict[str, Any]) -> Picture:
    from diffuse_core.cli.picture import neediest, placed
    from diffuse_core.domain.needs import Means
    from diffuse_core.errors import Unreachable
    from diffuse_core.services.devices import check_computed, default_capacity
    from diffuse_core.services.model_choice import AUTO, computed
    from diffuse_core.wiring import find_device, observe

    bootstrap = find_bootstrap(given["bootstrap"], given["state_dir"])
    memory = parse_size(given["memory"]) if given["memory"] else None
    device = await asyncio.to_thread(find_device, chosen_device(given["device"]), None)
    asked = chosen_contract(given["dtype"])
    if asked is not None:
        check_computed(device.kind, asked)
    means = Means(
        own=_own_id(given["state_dir"]),
        capacity=default_capacity(device.free) if memory is None else memory,
        contracts=computed(device.kind, asked),
        max_layers=given["max_layers"],
    )
    auto = given["model"] == AUTO
    try:
        async with observe(bootstrap, given["network"]) as (observer, _):
            members = observer.members()
            if auto:
                return neediest(members, means)
            return placed(await _reference(given, device, observer), members, means)
    except Unreachable as error:
        if given["bootstrap"] or auto:
            raise
        click.echo(f"diffuse: planning for an empty network ({error})", err=True)
    return placed(await _reference(given, device, None), (), means)


def _own_id(state: str | None) -> NodeId:
    """The id of the node running here; where none runs, one like a new node's."""
    from diffuse_core.domain.identity import NodeId

    found = running_node(state_dir(state))
    with contextlib.suppress(ValueError):
        if found is not None:
            return NodeId(bytes.fromhex(found.node))
    return NodeId(os.urandom(32))


async def _reference(given: dict[str, Any], device: Device, observer: Observer | None) -> ModelRef:
    """The model as its files say, or as the network does when there are none here."""
    from diffuse_core.domain.coverage import models as known_models
    from diffuse_core.domain.selection import find_model
    from diffuse_core.errors import ModelUnknown
    from diffuse_core.services.devices import can_compute
    from diffuse_core.services.model_choice import choose_contract, reference

    known = known_models(observer.members()) if observer is not None else ()
    asked = chosen_contract(given["dtype"])
    absent: ModelUnknown | None = None
    if observer is not None and not given["is_path"]:
        try:
            view = find_model(observer.view(), given["model"])
        except ModelUnknown as error:
            absent = error
        else:
            if asked in (None, view.contract) and can_compute(device.kind, view.contract):
                return next(ref for ref in known if ref.fingerprint == view.fingerprint)
    bar = Bar(f"reading {given['model']}")
    try:
        source = await asyncio.to_thread(_open, given["model"], absent, bar.show)
    finally:
        bar.close()
    contract = asked or choose_contract(source, known, device)
    return await asyncio.to_thread(reference, source, contract)


def _open(model: str, absent: ModelUnknown | None, progress: Progress) -> ModelSource:
    """Read a model's headers; `absent` says that the network does not have it."""
    from diffuse_core.errors import ModelUnknown, ModelUnusable
    from diffuse_core.wiring import model_store

    try:
        return model_store().open(model, progress)
    except ModelUnusable:
        raise
    except ModelUnknown as error:
        if absent is None:
            raise
        raise ModelUnknown(f"{absent}; and {error}") from error
