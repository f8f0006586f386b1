"""Findings about the clock: by the kernel's word, and against the clocks of other nodes."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from diffuse_core.cli.doctor.findings import Finding, note, ok, warning
from diffuse_core.domain.clocks import NetworkClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diffuse_core.domain.identity import NodeId

GOOD_S = 5.0
FAR_S = 60.0
"""From here on records of nodes lie in each other's future, and the network's clock is needed."""


def judge_sync(synchronised: bool | None) -> Finding:
    """What the kernel says of its clock."""
    if synchronised is None:
        return note("clock", "the system does not say whether its clock is set by others")
    if synchronised:
        return ok("clock", "kept right by NTP, as the kernel says", synchronised=True)
    step = "usual in containers; else run: timedatectl set-ntp true"
    return note("clock", "the kernel says that nobody sets its clock", step, synchronised=False)


def judge_against(ahead: Mapping[NodeId, float], wall: float) -> Finding:
    """How far this clock is from those of other nodes.

    Args:
        ahead: seconds that the clock of each of them is ahead of ours.
        wall: our Unix time.
    """
    if not ahead:
        return note("clock of others", "no node told its time, so nothing is compared")
    network = NetworkClock(round(wall * 1000))
    for node, seconds in ahead.items():
        network.told(node, round((wall + seconds) * 1000), 0.0, member=True)
    typical = statistics.median_high(ahead.values())
    counted = (network.network_ms(0.0) - network.wall_ms(0.0)) / 1000
    nodes = "1 node" if len(ahead) == 1 else f"{len(ahead)} nodes"
    told = {"others_ahead_s": round(typical, 3), "network_ahead_s": counted, "nodes": len(ahead)}
    if abs(typical) <= GOOD_S:
        return ok("clock of others", f"within {abs(typical):.1f} s of that of {nodes}", **told)
    way = "behind" if typical > 0 else "ahead of"
    found = f"this clock is {_span(abs(typical))} {way} that of {nodes}"
    if abs(typical) <= FAR_S:
        return note("clock of others", found, "run: timedatectl set-ntp true", **told)
    step = (
        "the network copes, as it reckons with the clocks of many; logs and downloads over TLS "
        "do not: set it, e.g. timedatectl set-ntp true"
    )
    return warning("clock of others", found, step, **told)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
