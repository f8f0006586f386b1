"""What if nodes go: which layers lose holders, and who would take over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.healing import moves
from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.rearranging import rearranged
from diffuse_core.domain.slices import ranges_where
from diffuse_core.domain.standing import coming_text, listed, remedy_text, weakness_text
from diffuse_tui.presenter.figures import counted
from diffuse_tui.presenter.imagined import as_held, held, moved, node_id, sizes, summaries, without
from diffuse_tui.presenter.standing import state_mark
from diffuse_tui.presenter.what_if import NAMED, UNTOLD, WhatIf

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.slices import Slice
    from diffuse_core.domain.view import ModelView, NetworkView
    from diffuse_tui.presenter.imagined import Held


def what_if_node(view: NetworkView, model: ModelView, nodes: Collection[str]) -> WhatIf:
    """What it means for `model` when all of `nodes` (full ids) go at once."""
    parts = held(view.nodes, model)
    rest = without(parts, nodes)
    going = [one for one in parts if one.node.node in nodes]
    before, after = as_held(model, parts), as_held(model, rest)
    if not going:
        whose = "it holds" if len(nodes) == 1 else "they hold"
        told = f"nothing changes: {whose} nothing of {clean_line(model.id, 60)}"
        return WhatIf(told, "dim", (), (), (("now", before),))
    facts = [("holds", _holdings(going)), *_losses(before, after), *_sessions(going, after)]
    steps = [("now", before), ("then", after)]
    healing, healed = _healing(model, rest, after)
    facts.append(("next", healing))
    if healed is not None:
        steps.append(("healed", healed))
    return WhatIf(
        f"{_subject(len(going))}: {_effect(before, after)}",
        "dim" if before.replicas == after.replicas else state_mark(after.state)[1],
        tuple(facts),
        tuple((clean_line(one.node.short, 8), one.part) for one in going[:NAMED]),
        tuple(steps),
    )


def _subject(count: int) -> str:
    return {1: "if it goes", 2: "if both go"}.get(count, f"if these {count} go")


def _effect(before: ModelView, after: ModelView) -> str:
    lost = _lost(before, after)
    stays = "model stays" if before.state == after.state else "model"
    if lost:
        return f"gap{'s' if len(lost) > 1 else ''} {listed(lost)}, {stays} {after.state}"
    if before.state != after.state:
        return f"{weakness_text(after.replicas, after.target_replicas)}, model {after.state}"
    if before.replicas == after.replicas:
        return f"no layer loses a holder, {stays} {after.state}"
    if after.state == "Robust":
        return f"every layer keeps {after.min_replicas} holders or more, {stays} Robust"
    return f"every layer that has a holder keeps one, {stays} {after.state}"


def _lost(before: ModelView, after: ModelView) -> tuple[Slice, ...]:
    """Ranges that somebody holds now and nobody would."""
    return ranges_where(
        had > 0 and has == 0 for had, has in zip(before.replicas, after.replicas, strict=True)
    )


def _holdings(going: Sequence[Held]) -> str:
    told = [
        f"{clean_line(one.node.short, 8)} {one.part} ({one.node.state})" for one in going[:NAMED]
    ]
    rest = len(going) - len(told)
    return ", ".join(told) + (f" and {counted(rest, 'more host')}" if rest else "")


def _losses(before: ModelView, after: ModelView) -> list[tuple[str, str]]:
    facts = []
    lost, total, target = _lost(before, after), after.layers, after.target_replicas
    if lost:
        ends = [
            name
            for name, gone in (
                ("the embedding", lost[0].start == 0),
                ("the head", lost[-1].end == total),
            )
            if gone
        ]
        beside = f", with {' and '.join(ends)}" if ends else ""
        facts.append(("lost", f"{listed(lost)}{beside}: nobody else holds them"))
    thin = ranges_where(
        has > 0 and has < min(target, had)
        for had, has in zip(before.replicas, after.replicas, strict=True)
    )
    if thin:
        least = min(after.replicas[layer] for part in thin for layer in range(*_ends(part)))
        holders = "one holder" if least == 1 else f"{least} of {target} holders"
        facts.append(("weaker", f"{listed(thin)} would be left with {holders}"))
    elif not lost:
        facts.append(("weaker", "nothing that falls below the target"))
    return facts


def _ends(part: Slice) -> tuple[int, int]:
    return part.start, part.end


def _sessions(going: Sequence[Held], after: ModelView) -> list[tuple[str, str]]:
    running = sum(one.node.sessions for one in going)
    if not running:
        return []
    how = (
        "others replay them, and the answers go on"
        if after.servable
        else "they wait for a host to take over, and end if none does"
    )
    return [("sessions", f"{counted(running, 'session')} there now: {how}")]


def _healing(
    model: ModelView, rest: Sequence[Held], after: ModelView
) -> tuple[str, ModelView | None]:
    """Who would take over, and how the model stands then."""
    shape = sizes(model)
    if shape is None:
        return f"who would take over is not known: {UNTOLD}", None
    if after.state == "Robust":
        return "nobody needs to move", None
    hosts = summaries(rest)
    if not hosts:
        return _nobody(after), None
    target = model.target_replicas
    to: Mapping[NodeId, Slice] = {
        move.node: move.plan.slice for move in moves(hosts, shape, target_replicas=target)
    }
    # As Hosts do: only where nobody can be spared, and a gap is not being filled already.
    if not to and as_held(model, rest, soon=True).missing:
        to = rearranged(hosts, shape)
    if not to:
        return _nobody(after), None
    then = moved(rest, to)
    healed = as_held(model, then, soon=True)
    told = [
        f"{clean_line(one.node.short, 8)} from {one.part} to {to[node_id(one.node.node)]}"
        for one in rest
        if node_id(one.node.node) in to
    ]
    rest_text = f" and {len(told) - NAMED} more" if len(told) > NAMED else ""
    verb = "moves" if len(told) == 1 else "move"
    became = f"{after.state} -> {healed.state}"
    if after.state == healed.state:
        became = f"stays {healed.state}"
    if healed.missing:
        became += f", {listed(healed.missing)} still missing"
    soon = f"{coming_text(after.coming)}; " if after.coming else ""
    return f"{soon}{verb}: {', '.join(told[:NAMED])}{rest_text}; {became}", healed


def _nobody(after: ModelView) -> str:
    mend = "; ".join(filter(None, (coming_text(after.coming), remedy_text(after))))
    return f"no other host can be spared{': ' if mend else ''}{mend}"
