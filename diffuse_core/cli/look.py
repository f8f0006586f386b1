"""Commands that look at the network: models, status, plan."""

from __future__ import annotations

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
    print_json,
    run_until_done,
    set_logging,
    table,
)
from diffuse_core.settings import parse_size, running_node, size_text, state_dir

if TYPE_CHECKING:
    from diffuse_core.domain.planner import Plan
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.domain.view import FeedUpdate, ModelView, NetworkView, NodeView, Telemetry
    from diffuse_core.errors import ModelUnknown
    from diffuse_core.model_ports import ModelSource
    from diffuse_core.services.devices import Device
    from diffuse_core.services.observer import Observer


LATE_S = 0.05
"""From this event-loop lag on it is worth a word."""
BYTES_WORDS = {
    "weights": "weights of the layers",
    "kv_reserve": "room for KV cache",
    "total": "needed in all",
    "capacity": "may be taken",
}


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also models that cannot be served now.")
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@common
def models(everything: bool, as_json: bool, **given: Any) -> None:
    """List the models that can be served now."""
    set_logging(given["log_level"], given["log_format"])
    view = run_until_done(_look(given))
    listed = [model for model in view.models if everything or model.servable]
    if as_json:
        print_json({"models": [_model_json(model) for model in listed]})
        return
    if not listed:
        hidden = len(view.models)
        click.echo(
            f"no model is servable now; {hidden} incomplete (see --all)"
            if hidden
            else "no host holds any model yet; start one with `diffuse host --model ...`"
        )
        return
    rows = [("MODEL", "STATE", "LAYERS", "MISSING", "LEAST", "HOSTS", "DTYPE", "FINGERPRINT")]
    rows += [
        (
            model.id,
            model.state,
            str(model.layers),
            " ".join(map(str, model.missing)) or "-",
            f"x{model.min_replicas}",
            str(model.hosts),
            model.contract,
            model.fingerprint[:12],
        )
        for model in listed
    ]
    click.echo(table(rows))


def _model_json(model: ModelView) -> dict[str, Any]:
    import msgspec

    return {**msgspec.to_builtins(model), "missing": [[m.start, m.end] for m in model.missing]}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@common
def status(as_json: bool, **given: Any) -> None:
    """Show nodes and coverage; for the node running here also its telemetry."""
    set_logging(given["log_level"], given["log_format"])
    own = running_node(state_dir(given["state_dir"]))
    if own is not None and not given["bootstrap"]:
        update = run_until_done(_feed(given))
        view, telemetry = update.view, update.telemetry
    else:
        view, telemetry = run_until_done(_look(given)), None
    if as_json:
        import msgspec

        print_json({**msgspec.to_builtins(view), "telemetry": msgspec.to_builtins(telemetry)})
        return
    _print_view(view)
    if telemetry is not None:
        click.echo(
            f"\nhere: {telemetry.stage}, CPU {telemetry.cpu_percent:.0f} %, "
            f"process {telemetry.process_rss / 2**20:.0f} MiB, "
            f"weights {telemetry.weight_bytes / 2**20:.0f} MiB, "
            f"KV {telemetry.kv_used / 2**20:.0f} of {telemetry.kv_budget / 2**20:.0f} MiB, "
            f"{telemetry.tokens_per_s:.1f} tokens/s{_late(telemetry)}"
        )


def _late(telemetry: Telemetry) -> str:
    """What to say of the event loop: nothing while it is in time."""
    if telemetry.loop_lag_p99_s < LATE_S:
        return ""
    return (
        f"; late by {telemetry.loop_lag_p99_s * 1000:.0f} ms (p99 of the last minute, "
        f"{telemetry.loop_lag_max_s * 1000:.0f} ms at most): this machine is busy"
    )


def _print_view(view: NetworkView) -> None:
    for model in view.models:
        holding = [n for n in view.nodes if n.fingerprint == model.fingerprint]
        total = sum(node.liveness != "dead" for node in holding)
        gap = f", missing {' '.join(map(str, model.missing))}" if model.missing else ""
        click.echo(
            f"{model.id} in {model.contract}: {model.state}, {model.layers} layers, "
            f"{model.hosts} of {total} hosts ready{gap}"
        )
    # Only a member measures round trips and hears from nodes; who just asks one does not.
    seen = ("RTT", "SEEN") if view.me is not None else ()
    head = (
        "NODE",
        "ROLE",
        "LIVENESS",
        "SLICE",
        "DTYPE",
        "STATE",
        "SESSIONS",
        "KV",
        "TOK/S",
        "ADDRESS",
    )
    click.echo(table([(*head, *seen), *(_node_row(node, bool(seen)) for node in view.nodes)]))


def _node_row(node: NodeView, seen: bool) -> tuple[str, ...]:
    live = node.liveness != "dead"
    holds = live and node.slice is not None
    row = (
        node.short + ("*" if node.me else ""),
        node.role,
        node.liveness,
        str(node.slice) if node.slice else "-",
        node.contract or "-",
        node.state or "-" if live else "-",
        str(node.sessions) if holds else "-",
        f"{node.kv_used / max(1, node.kv_budget):.0%}" if holds else "-",
        f"{node.tokens_per_s:.1f}" if holds and node.tokens_per_s else "-",
        node.addresses[0] if node.addresses else "-",
    )
    if not seen:
        return row
    trip = f"{node.rtt_s * 1000:.1f} ms" if node.rtt_s is not None else "-"
    return (*row, trip, f"{node.last_seen_s:.0f} s")


@click.command()
@click.option(
    "--model",
    required=True,
    metavar="M",
    help="A model on the network or on the hub, a file or a directory.",
)
@holding
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@common
def plan(as_json: bool, **given: Any) -> None:
    """Print the slice this machine would take, why, and what it weighs."""
    set_logging(given["log_level"], given["log_format"])
    given["is_path"] = Path(given["model"]).exists()
    ref, made = run_until_done(_plan(given))
    if as_json:
        part = [made.slice.start, made.slice.end]
        print_json({"model": ref.id, "slice": part, "reason": made.reason, "bytes": made.bytes})
        return
    click.echo(
        f"{ref.id} ({ref.shape.layers} layers, {ref.contract}): would take layers {made.slice}"
    )
    click.echo(f"why: {made.reason}")
    for name, size in made.bytes.items():
        click.echo(f"  {BYTES_WORDS.get(name, name):<24}{size_text(size):>12}")


async def _look(given: dict[str, Any]) -> NetworkView:
    from diffuse_core.wiring import observe

    bootstrap = find_bootstrap(given["bootstrap"], given["state_dir"])
    async with observe(bootstrap, given["network"]) as (observer, _):
        return observer.view()


async def _feed(given: dict[str, Any]) -> FeedUpdate:
    import asyncio
    from contextlib import aclosing

    from diffuse_core.wiring import attach

    attachment = await attach(state_dir(given["state_dir"]), given["network"])
    try:
        async with asyncio.timeout(10), aclosing(attachment.updates()) as updates:
            return await anext(updates)
    finally:
        await attachment.close()


async def _plan(given: dict[str, Any]) -> tuple[ModelRef, Plan]:
    import asyncio

    from diffuse_core.domain.coverage import COMMITTED, held_slices
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.planner import plan as make_plan
    from diffuse_core.errors import Unreachable
    from diffuse_core.services.devices import default_capacity
    from diffuse_core.wiring import find_device, observe

    bootstrap = find_bootstrap(given["bootstrap"], given["state_dir"])
    memory = parse_size(given["memory"]) if given["memory"] else None
    device = await asyncio.to_thread(find_device, chosen_device(given["device"]), None)
    held = []
    try:
        async with observe(bootstrap, given["network"]) as (observer, _):
            ref = await _reference(given, device, observer)
            held = list(held_slices(observer.members(), ref, COMMITTED))
    except Unreachable as error:
        if given["bootstrap"]:
            raise
        click.echo(f"diffuse: planning for an empty network ({error})", err=True)
        ref = await _reference(given, device, None)
    capacity = default_capacity(device.free) if memory is None else memory
    return ref, make_plan(
        capacity,
        ref.shape,
        held,
        max_layers=given["max_layers"],
        own=NodeId(os.urandom(32)),
        model=ref.id,
    )


async def _reference(given: dict[str, Any], device: Device, observer: Observer | None) -> ModelRef:
    """The model as its files say, or as the network does when there are none here."""
    import asyncio

    from diffuse_core.domain.coverage import models as known_models
    from diffuse_core.domain.selection import find_model
    from diffuse_core.errors import ModelUnknown
    from diffuse_core.services.devices import can_compute, check_computed
    from diffuse_core.services.host import choose_contract, reference

    known = known_models(observer.members()) if observer is not None else ()
    asked = chosen_contract(given["dtype"])
    if asked is not None:
        check_computed(device.kind, asked)
    absent: ModelUnknown | None = None
    if observer is not None and not given["is_path"]:
        try:
            view = find_model(observer.view(), given["model"])
        except ModelUnknown as error:
            absent = error
        else:
            if asked in (None, view.contract) and can_compute(device.kind, view.contract):
                return next(ref for ref in known if ref.fingerprint == view.fingerprint)
    source = await asyncio.to_thread(_open, given["model"], absent)
    contract = asked or choose_contract(source, known, device)
    return await asyncio.to_thread(reference, source, contract)


def _open(model: str, absent: ModelUnknown | None) -> ModelSource:
    """Read a model's headers; `absent` says that the network does not have it."""
    from diffuse_core.errors import ModelUnknown, ModelUnusable
    from diffuse_core.wiring import model_store

    try:
        return model_store().open(model, lambda _fraction: None)
    except ModelUnusable:
        raise
    except ModelUnknown as error:
        if absent is None:
            raise
        raise ModelUnknown(f"{absent}; and {error}") from error
