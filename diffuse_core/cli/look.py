"""Commands that look at the network: models, status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.common import (
    common,
    find_bootstrap,
    print_json,
    run_until_done,
    set_logging,
    table,
)
from diffuse_core.cli.hints import on_network
from diffuse_core.errors import ChannelClosed
from diffuse_core.settings import running_node, state_dir

if TYPE_CHECKING:
    from diffuse_core.domain.view import FeedUpdate, ModelView, NetworkView, NodeView, Telemetry

LATE_S = 0.05
"""From this event-loop lag on it is worth a word."""
FEED_S = 10.0


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also models that cannot be served now.")
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@common
def models(everything: bool, as_json: bool, **given: Any) -> None:
    """List the models that can be served now.

    With --all also the others, and for each who holds which layers, what is being loaded, and
    what one more host of which size would mend. `NAME@FINGERPRINT` tells models of one name
    apart that share no route.

    \b
    diffuse models
    diffuse models --all --bootstrap 192.168.1.20:9440
    diffuse models --json | jq -r '.models[].id'

    Defaults: servable models only, of the network that the node here is on.
    """
    set_logging(given["log_level"], given["log_format"])
    view = _marked(run_until_done(_look(given)), given)
    from diffuse_core.cli.coverage_text import (
        model_rows,
        standing_lines,
        unreachable_lines,
        variant_lines,
    )
    from diffuse_core.cli.quarantine_text import quarantine_lines
    from diffuse_core.domain.standing import variants

    listed = [model for model in view.models if everything or model.servable]
    if as_json:
        doubted = [_standing_json(node) for node in view.nodes if node.quarantine]
        told = [_model_json(model) for model in listed]
        print_json({"models": told, "ids": variants(listed), "quarantine": doubted})
        return
    if not listed:
        hidden = len(view.models)
        click.echo(
            f"no model is servable now; {hidden} incomplete (see --all)"
            if hidden
            else "no host holds any model yet; start one with "
            f"`diffuse host --model ...{on_network(given['network'])}`"
        )
        return
    click.echo(table(model_rows(listed)))
    if everything:
        for model in listed:
            click.echo("\n" + "\n".join(standing_lines(model)))
    for line in (
        *variant_lines(listed),
        *unreachable_lines(view.nodes),
        *quarantine_lines(view, listed),
    ):
        click.echo(line)


def _model_json(model: ModelView) -> dict[str, Any]:
    """How a model stands; without its shape, a table that only forecasts can use."""
    import msgspec

    told: dict[str, Any] = msgspec.to_builtins(model)
    del told["shape"]
    return told


def _standing_json(node: NodeView) -> dict[str, Any]:
    """A node in quarantine, and what it holds."""
    return {
        "node": node.node,
        "state": node.quarantine,
        "model": node.model,
        "fingerprint": node.fingerprint,
        "slice": node.slice,
    }


def _marked(view: NetworkView, given: dict[str, Any]) -> NetworkView:
    """The picture, with the nodes that audits found out."""
    from diffuse_core.cli.quarantine import quarantine_book
    from diffuse_core.services.quarantine import marked

    return marked(view, quarantine_book(given["state_dir"]).standings())


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@common
def status(as_json: bool, **given: Any) -> None:
    """Show nodes and coverage; for the node running here also its telemetry.

    Holders are told along the layers (`0:10 x2, 10:20 x1`); `via 1a2b3c4d` is a node that is met
    through a sentinel.

    \b
    diffuse status
    diffuse status --bootstrap 192.168.1.20:9440
    diffuse status --json

    Default: the node of this state directory is asked, else the network is looked for.
    """
    set_logging(given["log_level"], given["log_format"])
    own = running_node(state_dir(given["state_dir"]))
    if own is not None and not given["bootstrap"]:
        update = run_until_done(_feed(given))
        view, telemetry = update.view, update.telemetry
    else:
        view, telemetry = run_until_done(_look(given)), None
    view = _marked(view, given)
    if as_json:
        import msgspec

        from diffuse_core.domain.standing import variants

        ids = msgspec.to_builtins(variants(view.models))
        told = msgspec.to_builtins(telemetry)
        models = [_model_json(model) for model in view.models]
        seen = {**msgspec.to_builtins(view), "models": models}
        print_json({**seen, "ids": ids, "telemetry": told})
        return
    _print_view(view)
    if telemetry is not None:
        click.echo(
            f"\nhere: {telemetry.stage}, machine's CPU {telemetry.cpu_percent:.0f} %, "
            f"process {telemetry.process_rss / 2**20:.0f} MiB, "
            f"weights {telemetry.weight_bytes / 2**20:.0f} MiB, "
            f"KV {telemetry.kv_used / 2**20:.0f} of {telemetry.kv_budget / 2**20:.0f} MiB, "
            f"{telemetry.tokens_per_s:.1f} tokens/s{_relays(telemetry)}{_late(telemetry)}"
        )


def _relays(telemetry: Telemetry) -> str:
    """What a sentinel does for others."""
    relay = telemetry.relay
    if relay is None:
        return ""
    return (
        f", relays: {relay.reservations} reservations, {relay.circuits} circuits, "
        f"{relay.bytes_relayed / 2**20:.1f} MiB so far"
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
    from diffuse_core.cli.coverage_text import standing_lines, unreachable_lines, variant_lines
    from diffuse_core.cli.quarantine_text import quarantine_lines

    for model in view.models:
        click.echo("\n".join(standing_lines(model)))
    for line in (
        *variant_lines(view.models),
        *unreachable_lines(view.nodes),
        *quarantine_lines(view, view.models),
    ):
        click.echo(line)
    if view.models:
        click.echo("")
    # Only a member measures round trips and hears from nodes; who just asks one does not.
    member = view.me is not None
    seen = ("RTT", "SEEN") if member else ()
    head = ("NODE", "ROLE", "SLICE", "DTYPE", "STATE", "SESS", "KV", "TOK/S", *seen, "ADDRESS")
    click.echo(table([head, *(_node_row(node, member) for node in view.nodes)]))


def _trip(node: NodeView) -> str:
    """What was measured, or about what coordinates tell."""
    if node.rtt_s is not None:
        return f"{node.rtt_s * 1000:.1f} ms"
    return "-" if node.distance_s is None else f"~{node.distance_s * 1000:.0f} ms"


def _node_row(node: NodeView, seen: bool) -> tuple[str, ...]:
    holds = node.liveness != "dead" and node.slice is not None
    times: tuple[str, ...] = ()
    if seen:
        times = (_trip(node), f"{node.last_seen_s:.0f} s")
    return (
        node.short + ("*" if node.me else ""),
        node.role,
        str(node.slice) if node.slice else "-",
        node.contract or "-",
        _state(node),
        str(node.sessions) if holds else "-",
        f"{node.kv_used / max(1, node.kv_budget):.0%}" if holds else "-",
        f"{node.tokens_per_s:.1f}" if holds and node.tokens_per_s else "-",
        *times,
        _met_at(node),
    )


def _state(node: NodeView) -> str:
    from diffuse_core.cli.quarantine_text import sign

    state = node.state or "alive" if node.liveness == "alive" else node.liveness
    return f"{state} {sign(node.quarantine)}" if node.quarantine else state


def _met_at(node: NodeView) -> str:
    """Where others reach a node: who has relays cannot be dialled from everywhere."""
    from diffuse_core.domain.selection import unreachable

    if unreachable(node):
        return "unreachable"
    if node.relays:
        from diffuse_core.domain.identity import SHORT_LENGTH

        return "via " + ", ".join(relay[:SHORT_LENGTH] for relay in node.relays)
    return node.addresses[0] if node.addresses else "-"


async def _look(given: dict[str, Any]) -> NetworkView:
    from diffuse_core.wiring import observe

    bootstrap = find_bootstrap(given["bootstrap"], given["state_dir"])
    async with observe(bootstrap, given["network"]) as (observer, _):
        return observer.view()


async def _feed(given: dict[str, Any]) -> FeedUpdate:
    import asyncio
    from contextlib import aclosing

    from diffuse_core.wiring import attach, silent

    state = state_dir(given["state_dir"])
    attachment = await attach(state, given["network"])
    try:
        async with asyncio.timeout(FEED_S), aclosing(attachment.updates()) as updates:
            return await anext(updates)
    except TimeoutError:
        found = running_node(state)
        raise silent(found) if found else ChannelClosed("the node here just ended") from None
    finally:
        await attachment.close()
