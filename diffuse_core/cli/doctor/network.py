"""Findings about the network: addresses, sentinels, models, versions, the node running here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from diffuse_core.cli.doctor.findings import Finding, note, ok, problem, warning
from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.selection import unreachable_text
from diffuse_core.domain.standing import counted, ranges_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.view import ModelView, NetworkView, NodeView, Telemetry

Step = Literal["resolve", "connect", "handshake", "done"]
"""What of reaching an address failed; `done` when nothing did."""

_SHOWN = 5

_STEPS: dict[str, str] = {
    "network": "give both the same --network",
    "version": "update the older of the two",
    "keyed": "the node there has no network key: take --network-key away, or give it there",
    "keyless": "give this command the network's key: --network-key-file FILE",
    "key": "the keys differ: give this command that of the node there",
    "own": "that is this node's own address: give one of another node",
}


@dataclass(frozen=True)
class AddressFacts:
    """How far a dial came. `reason` is the handshake's word for why it failed.

    `open_s` is what the way to the proven channel took, `rtt_s` a round trip over it.
    """

    address: str
    failed: Step
    why: str = ""
    reason: str = ""
    node: str = ""
    open_s: float | None = None
    rtt_s: float | None = None


@dataclass(frozen=True)
class SentinelFacts:
    """What one sentinel does. `relayed` None: nobody is met through it, so it was not tried."""

    short: str
    rtt_s: float | None
    clients: int = 0
    relayed: bool | None = None


@dataclass(frozen=True)
class HereFacts:
    """The node that runs with this state directory; `me` and `telemetry` as its owner sees it.

    `stale` is that node.json was left by one that ended; `holder` the process with the lock.
    """

    pid: int | None = None
    address: str = ""
    stale: bool = False
    holder: int | None = None
    me: NodeView | None = None
    telemetry: Telemetry | None = None
    why: str = ""
    events: Sequence[str] = field(default=())


def judge_address(facts: AddressFacts) -> Finding:
    """Whether a bootstrap address leads to a node of our network."""
    name = f"bootstrap {clean_line(facts.address, 64)}"
    told = {"address": facts.address, "failed": facts.failed, "reason": facts.reason}
    if facts.failed == "done":
        trip = f", round trip {facts.rtt_s * 1000:.1f} ms" if facts.rtt_s is not None else ""
        opened = f"node {facts.node[:8]} answers"
        if facts.open_s is not None:
            opened += f" in {facts.open_s * 1000:.0f} ms"
        return ok(name, f"{opened}{trip}", rtt_s=facts.rtt_s, node=facts.node, **told)
    why = clean_line(facts.why)
    if facts.failed == "resolve":
        step = "check the name for a slip, and that names are resolved here (getent hosts NAME)"
        return problem(name, why, step, **told)
    if facts.failed == "connect":
        step = "check that the node runs, its port, and firewalls in between; or leave it out"
        return problem(name, why, step, **told)
    cause, _, step = why.removeprefix(f"cannot use {facts.address}: ").partition("; ")
    cause = cause.removeprefix(f"{facts.address} ")
    step = _STEPS.get(facts.reason, step or "check the port, or try again")
    return problem(name, f"something answers, but {cause}", step, **told)


def judge_look(view: NetworkView | None, why: str, asked: bool) -> Finding:
    """Whether a network was found. `asked`: addresses were given."""
    if view is not None:
        hosts = sum(node.role == "host" for node in view.nodes)
        found = f"{counted(len(view.nodes), 'node')}, of them {counted(hosts, 'host')}; "
        found += counted(len(view.models), "model")
        return ok("network", found, nodes=len(view.nodes), hosts=hosts, models=len(view.models))
    step = "start a node (`diffuse sentinel`, `diffuse host`), or give --bootstrap HOST:PORT"
    tell = problem if asked else note
    return tell("network", clean_line(why), step)


def judge_lan(interfaces: Sequence[str], nodes: int, wanted: bool, why: str = "") -> Finding:
    """Whether nodes of the LAN can be found without an address."""
    told = {"interfaces": list(interfaces), "nodes": nodes}
    if not wanted:
        return ok("lan", "not looked at (--no-mdns)", **told)
    if not interfaces:
        step = "give --bootstrap HOST:PORT; loopback alone is no LAN"
        return note("lan", "no interface with multicast", step, **told)
    listed = ", ".join(interfaces[:_SHOWN])
    if why:
        return note("lan", f"{listed}: {clean_line(why)}", "give --bootstrap HOST:PORT", **told)
    found = f"{nodes or 'no'} node{'' if nodes == 1 else 's'} heard by multicast DNS on {listed}"
    return ok("lan", found, **told)


def judge_sentinels(facts: Sequence[SentinelFacts]) -> Finding:
    """Who helps nodes that cannot be dialled."""
    told = {
        "sentinels": [
            {"node": one.short, "rtt_s": one.rtt_s, "clients": one.clients, "relays": one.relayed}
            for one in facts
        ]
    }
    if not facts:
        step = "start one where it can be dialled: diffuse sentinel --listen 0.0.0.0:9440"
        return note("sentinels", "none: nodes behind NAT cannot be met", step, **told)
    found = "; ".join(map(_sentinel_text, facts[:_SHOWN]))
    silent = [one for one in facts if one.rtt_s is None]
    if len(silent) == len(facts):
        step = "check firewalls between here and them, and that they run"
        return warning("sentinels", found, step, **told)
    if any(one.relayed is False for one in facts):
        step = "try again in a moment; if it stays so, look at that sentinel's log"
        return warning("sentinels", found, step, **told)
    return ok("sentinels", found, **told)


def _sentinel_text(one: SentinelFacts) -> str:
    if one.rtt_s is None:
        return f"{one.short} does not answer"
    text = f"{one.short} {one.rtt_s * 1000:.1f} ms"
    if one.clients:
        text += f", relays for {one.clients}"
    if one.relayed is not None:
        text += " (tried: works)" if one.relayed else " (tried: in vain)"
    return text


def judge_models(view: NetworkView) -> list[Finding]:
    """How each model of the network stands."""
    found = [_judge_model(model) for model in view.models[:_SHOWN]]
    if len(view.models) > _SHOWN:
        left = len(view.models) - _SHOWN
        found.append(note("model", f"and {left} more", "see: diffuse models --all"))
    if not view.models:
        step = "start one: diffuse host --model demo"
        found.append(note("model", "no host holds any model", step))
    if (text := unreachable_text(view.nodes)) is not None:
        what, _, step = text.partition("; ")
        found.append(warning("route", what, step))
    return found


def _judge_model(model: ModelView) -> Finding:
    name = f"model {clean_line(model.id, 48)}"
    told = {"fingerprint": model.fingerprint, "state": model.state, "missing": model.missing}
    found = f"{model.state}, {counted(model.layers, 'layer')} in {model.contract}"
    found += f" on {counted(model.hosts, 'host')}"
    if model.missing:
        found += f"; held by nobody: {ranges_text(model.missing)}"
        step = f"add a host: diffuse host --model {model.id}"
        return warning(name, found, step, **told)
    if model.state == "Fragile":
        step = "one more host would make it Robust; see: diffuse plan --model ..."
        held = counted(model.min_replicas, "holder")
        return note(name, f"{found}; some layers have only {held}", step, **told)
    return ok(name, found, **told)


def judge_versions(nodes: Sequence[NodeView], own: str) -> Finding:
    """Whether nodes run other versions than this one."""
    versions = sorted({clean_line(node.version, 32) for node in nodes} - {""})
    others = [version for version in versions if version != own]
    if not others:
        return ok("versions", f"all run {own}", versions=versions)
    told = f"here {own}, on the network also {', '.join(others[:_SHOWN])}"
    if any(_line(version) != _line(own) for version in others):
        step = "adjacent versions work together; update the oldest nodes"
        return note("versions", told, step, versions=versions)
    return ok("versions", told, versions=versions)


def _line(version: str) -> str:
    return ".".join(version.split(".")[:2])


def judge_here(facts: HereFacts, own: str) -> list[Finding]:
    """The node that runs here, and how others reach it. `own` is the version installed."""
    if facts.pid is None:
        return [_judge_absent(facts)]
    told = {"pid": facts.pid, "address": facts.address}
    if facts.me is None:
        step = f"try again, or end it with `kill {facts.pid}`"
        return [problem("node here", clean_line(facts.why), step, **told)]
    me = facts.me
    doing = f", {facts.telemetry.stage}" if facts.telemetry and facts.telemetry.stage else ""
    found = f"{me.role} {me.short}, version {me.version}, {facts.address}{doing}"
    if me.version != own:
        step = f"{own} is installed: start it again to run that"
        return [note("node here", found, step, node=me.node, **told), judge_reach(me)]
    return [ok("node here", found, node=me.node, **told), judge_reach(me)]


def _judge_absent(facts: HereFacts) -> Finding:
    if facts.holder is not None:
        step = f"wait for it, or see what it is: ps -p {facts.holder}"
        return note("node here", f"process {facts.holder} holds the lock and is no node", step)
    if facts.stale:
        return note("node here", "none runs; node.json was left by one that was killed, harmless")
    return ok("node here", "none runs with this state directory")


def judge_reach(me: NodeView) -> Finding:
    """How others meet the node here, as it tells them."""
    told = {"addresses": me.addresses, "relays": me.relays}
    at = ", ".join(clean_line(one, 64) for one in me.addresses[:_SHOWN])
    if me.relays:
        by = ", ".join(relay[:8] for relay in me.relays)
        near = f"; on its LAN at {at}" if at else ""
        step = "forward its port and give --public-addr HOST:PORT, and it is dialled, faster"
        return note("reachable", f"through sentinel {by}{near}", step, **told)
    if at:
        return ok("reachable", f"others dial it at {at}", **told)
    step = "start a sentinel that it can reach, or forward its port and give --public-addr"
    return problem("reachable", "nobody can dial it, and no sentinel relays for it", step, **told)
