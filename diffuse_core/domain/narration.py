"""Narration: what happens to members, answers and in audits, in words for people; no prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.identity import SHORT_LENGTH, short_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from diffuse_core.domain.records import Record
    from diffuse_core.domain.roles import HoldState
    from diffuse_core.domain.view import Audited, EventLevel, Healed, Liveness

Line = tuple["EventLevel", str]

_HOLDING: dict[HoldState, tuple[EventLevel, str]] = {
    "claiming": ("info", "claims"),
    "loading": ("info", "is loading"),
    "ready": ("good", "is ready with"),
    "leaving": ("warning", "is giving up"),
}
_LIVENESS: dict[Liveness, tuple[EventLevel, str]] = {
    "alive": ("good", "is back"),
    "suspect": ("warning", "is suspect"),
    "dead": ("error", "died"),
}
TWIN: Line = (
    "warning",
    "a record of this node that this process never published is going around: the clock went "
    "back, or another process runs with the same identity (give it its own --state-dir)",
)
REBASED: Line = (
    "warning",
    "this machine's clock is far ahead of those of other nodes: records are dated by theirs from "
    "now on; set the clock",
)


def record_lines(old: Record | None, new: Record) -> list[Line]:
    """What a newer record tells; `old` is None when the node was not among the living before."""
    name = short_text(new.node)
    if new.left:
        return [] if old is None else [("warning", f"{name} left")]
    lines: list[Line] = []
    if old is None:
        lines.append(("info", f"{name} joined as {new.role}"))
    before = old.holding if old is not None else None
    if new.holding is None:
        if before is not None:
            lines.append(("warning", f"{name} gave up {before.slice}"))
    elif before is None or (before.state, before.slice) != (new.holding.state, new.holding.slice):
        level, words = _HOLDING[new.holding.state]
        lines.append((level, f"{name} {words} {new.holding.slice}"))
    return lines


def liveness_line(node: bytes, liveness: Liveness) -> Line:
    """What a change of liveness tells."""
    level, words = _LIVENESS[liveness]
    return level, f"{short_text(node)} {words}"


def two_faced_line(node: bytes) -> Line:
    """Two different records of one sequence are going around: whose, and what that means."""
    return "warning", (
        f"{short_text(node)} signed two different records under one sequence: two processes "
        "use its identity, or it lies; of each pair all nodes keep the same one"
    )


def healed_text(found: Healed) -> str:
    """A Stage of an answer was lost, and who does its work now."""
    lost = f"{_short(found.lost.node)} (layers {found.lost.slice})"
    others = _names({step.node for step in found.replaced_by}) or "the same nodes"
    return f"an answer lost {lost}: {found.why}; went on with {others} after {found.seconds:.1f} s"


def audit_text(found: Audited) -> str:
    """What came of the audit of one Stage."""
    name = f"stage {found.node[:SHORT_LENGTH]} (layers {found.slice})"
    if found.verdict == "unaudited":
        return f"{name} was not audited: {found.reason}"
    if found.verdict == "agrees":
        said = f"{name} agrees with {_short(found.decided_by or found.auditors[0].auditor)}"
    elif found.decided_by is not None:
        names = " and ".join(_short(one.auditor) for one in found.auditors)
        said = f"{name} did not agree with two others, {names}{_apart(found)}"
    else:
        said = f"{name} did not agree with {_short(found.auditors[0].auditor)}{_apart(found)}"
    told = [said, found.reason] if found.reason else [said]
    if found.quarantined:
        told.append(f"quarantined {_names(found.quarantined)}")
    if found.doubtful:
        told.append(f"doubtful from now on, and avoided while others do: {_names(found.doubtful)}")
    return "; ".join(told)


def quarantine_lines(before: Mapping[str, str], now: Mapping[str, str]) -> list[Line]:
    """What has changed in how nodes stand because of audits, whoever on this machine asked.

    Both are "quarantined" or "doubtful" by the node's id in text.
    """
    lines: list[Line] = []
    for node, standing in sorted(now.items()):
        if before.get(node) == standing:
            continue
        if standing == "quarantined":
            why = "an audit found that what it computed is wrong"
            lines.append(("error", f"{_short(node)} is quarantined: {why}"))
        else:
            why = "avoided while there are others"
            lines.append(("warning", f"{_short(node)} is doubtful since an audit: {why}"))
    gone = sorted(before.keys() - now.keys())
    return lines + [("info", f"{_short(node)} is {before[node]} no longer") for node in gone]


def _apart(found: Audited) -> str:
    """How far from its auditors a Stage was, where that can be told."""
    rows = max((one.difference or 0.0 for one in found.auditors), default=0.0)
    nats = max((one.nats or 0.0 for one in found.auditors), default=0.0)
    if rows > found.tolerance:
        return f" (rows {rows:.2g} apart, {found.tolerance:g} passes)"
    if nats > found.nats_tolerance:
        return f" (a token {nats:.2g} nats out of reach, {found.nats_tolerance:g} passes)"
    return ""


def _names(nodes: Iterable[str]) -> str:
    return " and ".join(sorted(map(_short, nodes)))


def _short(node: str) -> str:
    return node[:SHORT_LENGTH]
