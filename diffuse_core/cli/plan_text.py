"""A plan as lines for people and as JSON for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from diffuse_core.cli.coverage_text import wrapped
from diffuse_core.domain.forecast import MoreHosts, MoreMemory, change, more_hosts, more_memory
from diffuse_core.domain.outlook import change_text, more_hosts_text, more_memory_text
from diffuse_core.domain.selection import fetch_name

if TYPE_CHECKING:
    from diffuse_core.cli.picture import Picture
    from diffuse_core.domain.needs import Need
    from diffuse_core.domain.planner import Plan


def plan_lines(picture: Picture, made: Plan) -> list[str]:
    """What would be taken, why, what it changes, and what more would; without the bill."""
    model, memory, hosts = picture.model, _memory(picture, made), _hosts(picture, made)
    layers, target = model.shape.layers, picture.means.target_replicas
    what = change(layers, picture.held, made.slice, target)
    lines = []
    if picture.ranking:
        lines.append("models of this network, the one that needs this machine most first:")
        for number, need in enumerate(picture.ranking, 1):
            lines += wrapped(f"{number}. {need.model.id} in {need.model.contract}: "
                             f"{need.reason}{_unfetched(need)}", "  ")  # fmt: skip
    lines.append(f"{model.id} ({layers} layers, {model.contract}): would take layers {made.slice}")
    if picture.here is not None:
        text = (
            f"here: the node running here holds {picture.here} of it already; "
            "planned as if it did not"
        )
        lines += wrapped(text, "")
    lines += wrapped(f"why: {made.reason}", "")
    lines += wrapped(f"changes: {change_text(what)}", "")
    for more in memory:
        lines += wrapped(f"more memory: {more_memory_text(more, made, what, layers)}", "")
    lines += wrapped(f"more hosts: {more_hosts_text(hosts, what, target)}", "")
    return lines


def plan_json(picture: Picture, made: Plan) -> dict[str, Any]:
    """All that `plan_lines` tells, and the bill, as plain data."""
    model, hosts = picture.model, _hosts(picture, made)
    layers, target = model.shape.layers, picture.means.target_replicas
    what = change(layers, picture.held, made.slice, target)
    told: dict[str, Any] = {
        "model": model.id,
        "slice": made.slice,
        "reason": made.reason,
        "bytes": made.bytes,
        "fingerprint": model.fingerprint,
        "contract": model.contract,
        "already_here": picture.here,
        "changes": {**msgspec.to_builtins(what), "text": change_text(what)},
        "more_memory": [
            {
                "extra_bytes": more.extra,
                "slice": more.plan.slice,
                "changes": more.change,
                "text": more_memory_text(more, made, what, layers),
            }
            for more in _memory(picture, made)
        ],
        "more_hosts": {
            **msgspec.to_builtins(hosts),
            "text": more_hosts_text(hosts, what, target),
        },
    }
    if picture.ranking:
        told["ranking"] = [_need_json(need) for need in picture.ranking]
    return told


def _need_json(need: Need) -> dict[str, Any]:
    return {
        "id": need.model.id,
        "fingerprint": need.model.fingerprint,
        "contract": need.model.contract,
        "effect": need.effect,
        "slice": need.plan.slice if need.plan else None,
        "reason": need.reason,
        "fetched_as": fetch_name(need.model.id),
    }


def _unfetched(need: Need) -> str:
    return "" if fetch_name(need.model.id) else " (only hosts that have its files can hold it)"


def _memory(picture: Picture, made: Plan) -> tuple[MoreMemory, ...]:
    means = picture.means
    return more_memory(
        made,
        picture.model.shape,
        picture.held,
        own=means.own,
        max_layers=means.max_layers,
        target_replicas=means.target_replicas,
    )


def _hosts(picture: Picture, made: Plan) -> MoreHosts:
    means = picture.means
    return more_hosts(
        made,
        picture.model.shape,
        picture.held,
        max_layers=means.max_layers,
        target_replicas=means.target_replicas,
    )
