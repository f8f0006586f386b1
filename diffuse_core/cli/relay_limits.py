"""Options of what a sentinel gives to nodes that it relays for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.common import a_size, adding
from diffuse_core.domain.relay import RelayLimits
from diffuse_core.domain.sizes import parse_size
from diffuse_core.errors import UsageError
from diffuse_core.settings import size_text

if TYPE_CHECKING:
    from collections.abc import Callable

_USUAL = RelayLimits()
LEFT_OVER = 0.125
"""The share of its connections that a sentinel keeps for nodes that want no relaying."""


def _count(name: str, usual: int, text: str) -> Callable[[Any], Any]:
    kind = click.IntRange(1, 4096)
    return click.option(name, type=kind, metavar="N", help=f"{text} Default: {usual}.")


def _rate(name: str, usual: float, text: str) -> Callable[[Any], Any]:
    told = f"{text} Default: {size_text(usual).replace('.0', '')}."
    return click.option(name, metavar="SIZE", callback=a_size, help=told)


limited = adding(
    _count(
        "--max-nodes",
        _USUAL.reservations,
        "Nodes behind routers that may be met through this sentinel at once. When it is full, "
        "room is shared by IP address.",
    ),
    _count(
        "--max-circuits",
        _USUAL.circuits,
        "Connections relayed at once. The last quarter is for hosts that serve.",
    ),
    _count(
        "--max-circuits-to",
        _USUAL.circuits_per_target,
        "Of them to one node; never more than --max-circuits.",
    ),
    _count(
        "--max-circuits-from",
        _USUAL.circuits_per_source,
        "Of them opened by one node; never more than --max-circuits.",
    ),
    _rate(
        "--bandwidth",
        _USUAL.total_bytes_per_s,
        "Bytes a second relayed in all, both ways together; one core copies about 50 MiB/s.",
    ),
    _rate(
        "--bandwidth-per-node",
        _USUAL.node_bytes_per_s,
        "Of them for one node; never more than --bandwidth.",
    ),
)
"""They change RelayLimits; what is left out is as usual, as far as the others allow."""


def relay_limits(given: dict[str, Any], connections: int) -> RelayLimits:
    """The limits that the options say.

    Args:
        given: The options; those that were left out are None.
        connections: How many the port accepts in all.

    Raises:
        UsageError: two of them contradict each other, or leave no room for other nodes.
    """
    circuits = given["max_circuits"] or _USUAL.circuits
    total = _bytes(given["bandwidth"], _USUAL.total_bytes_per_s)
    limits = RelayLimits(
        reservations=given["max_nodes"] or _USUAL.reservations,
        circuits=circuits,
        circuits_per_target=given["max_circuits_to"] or min(_USUAL.circuits_per_target, circuits),
        circuits_per_source=given["max_circuits_from"]
        or min(_USUAL.circuits_per_source, circuits),
        total_bytes_per_s=total,
        node_bytes_per_s=_bytes(given["bandwidth_per_node"], min(_USUAL.node_bytes_per_s, total)),
    )
    for part, option in (
        (limits.circuits_per_target, "--max-circuits-to"),
        (limits.circuits_per_source, "--max-circuits-from"),
    ):
        if part > circuits:
            raise UsageError(
                f"{option} {part} is more than --max-circuits {circuits}; give less, or raise that"
            )
    if limits.node_bytes_per_s > total:
        raise UsageError(
            f"--bandwidth-per-node {size_text(limits.node_bytes_per_s)} is more than --bandwidth "
            f"{size_text(total)}; give less, or raise that"
        )
    needed, room = limits.reservations + 2 * circuits, int(connections * (1 - LEFT_OVER))
    if needed > room:
        raise UsageError(
            f"--max-nodes {limits.reservations} and --max-circuits {circuits} take {needed} "
            f"connections, two for each circuit, and a sentinel has {room} for them; give less "
            "of one, or run a second sentinel"
        )
    return limits


def _bytes(text: str | None, usual: float) -> float:
    return float(parse_size(text)) if text else usual
