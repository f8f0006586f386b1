"""What if Hosts come: what they would take, why, and what that changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diffuse_core.domain.forecast import change, more_hosts, more_memory, to_come
from diffuse_core.domain.outlook import change_text, more_hosts_text, more_memory_text
from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.planner import plan
from diffuse_core.domain.sizes import parse_size
from diffuse_core.domain.standing import coming_text, listed
from diffuse_core.errors import UsageError
from diffuse_tui.presenter.figures import counted, size_text
from diffuse_tui.presenter.imagined import as_held, committed, held, node_id, sizes
from diffuse_tui.presenter.standing import state_mark
from diffuse_tui.presenter.what_if import MAX_COUNT, NAMED, UNTOLD, WhatIf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.planner import Plan
    from diffuse_core.domain.shapes import ModelShape
    from diffuse_core.domain.slices import Slice
    from diffuse_core.domain.view import ModelView, NetworkView

FIRST = 1000
"""Number of the first Host that is thought of; those that follow it count from 0."""

_HOSTS = re.compile(r"^\s*(?:([0-9]{1,4})\s*[x×*]\s*)?(.*)$", re.IGNORECASE | re.DOTALL)


def parse_hosts(text: str) -> tuple[int, int]:
    """Bytes and number of Hosts of `2 GB`, `500MB` or `3 x 1.5GiB`.

    Raises:
        UsageError: it is no size, or there are no Hosts or too many.
    """
    match = _HOSTS.match(text)
    number, size = (match[1], match[2]) if match else (None, text)
    count = int(number) if number else 1
    if not 1 <= count <= MAX_COUNT:
        raise UsageError(f"think of 1 to {MAX_COUNT} hosts, not {count}")
    return parse_size(size), count


def what_if_host(view: NetworkView, model: ModelView, size: int, count: int = 1) -> WhatIf:
    """What `count` Hosts of `size` bytes each would take, and what that changes.

    The first is taken to be this node where it holds nothing of the model, so that the answer is
    that of `diffuse plan` here.
    """
    parts = held(view.nodes, model)
    today, before = as_held(model, parts), as_held(model, parts, soon=True)
    # Placement counts what loads as held; how the model stands till then is on the banner.
    now = (("now", today), *([("soon", before)] if today.coming else []))
    shape = sizes(model)
    if shape is None:
        return WhatIf(f"no forecast: {UNTOLD}", "dim", (), (), now)
    slices = committed(parts)
    try:
        plans = _plans(view, model, shape, slices, size, min(count, MAX_COUNT))
    except UsageError as error:
        why = clean_line(str(error).partition(";")[0])
        return WhatIf("it would take nothing", "bad", (("why", why),), (), now)
    after = as_held(model, parts, [made.slice for made in plans], soon=True)
    facts = _several(plans)
    if len(plans) == 1:
        facts = _one(model, shape, slices, plans[0], _first(view, model))
    if today.coming:
        facts.append(("note", f"{coming_text(today.coming)}: that counts as held soon"))
    facts += _more(model, shape, slices, plans)
    return WhatIf(
        f"{_takes(plans, model.layers)}; {_became(before, after)}",
        state_mark(after.state)[1],
        tuple(facts),
        tuple(
            (f"host {number}" if len(plans) > 1 else "the host", made.slice)
            for number, made in enumerate(plans[:NAMED], 1)
        ),
        (*now, ("then", after)),
    )


def _plans(
    view: NetworkView,
    model: ModelView,
    shape: ModelShape,
    slices: Sequence[Slice],
    size: int,
    count: int,
) -> list[Plan]:
    """One after another, each with those before it counted."""
    plans: list[Plan] = []
    for number in range(count):
        plans.append(
            plan(
                size,
                shape,
                [*slices, *(made.slice for made in plans)],
                own=to_come(number - 1) if number else _first(view, model),
                target_replicas=model.target_replicas,
                model=clean_line(model.id, 60),
            )
        )
    return plans


def _first(view: NetworkView, model: ModelView) -> NodeId:
    here = any(one.node.me for one in held(view.nodes, model))
    return to_come(FIRST) if view.me is None or here else node_id(view.me)


def _takes(plans: Sequence[Plan], layers: int) -> str:
    if len(plans) == 1:
        return f"it would take layers {plans[0].slice} of {layers}"
    return f"{len(plans)} hosts would take {listed([made.slice for made in plans], NAMED)}"


def _became(before: ModelView, after: ModelView) -> str:
    if before.state != after.state:
        return f"{before.state} -> {after.state}"
    return f"stays {after.state}"


def _one(
    model: ModelView, shape: ModelShape, slices: Sequence[Slice], made: Plan, own: NodeId
) -> list[tuple[str, str]]:
    what = change(model.layers, slices, made.slice, model.target_replicas)
    more = more_memory(made, shape, slices, own=own, target_replicas=model.target_replicas)
    return [
        ("why", made.reason),
        ("changes", change_text(what)),
        ("bytes", _bill(made)),
        *(("memory", more_memory_text(one, made, what, model.layers)) for one in more),
    ]


def _several(plans: Sequence[Plan]) -> list[tuple[str, str]]:
    facts = [
        (f"host {number}", f"{made.slice}, {made.reason}")
        for number, made in enumerate(plans[:NAMED], 1)
    ]
    if len(plans) > NAMED:
        facts.append(("", f"and {counted(len(plans) - NAMED, 'more host')}"))
    return facts


def _bill(made: Plan) -> str:
    names = (
        ("weights", "weights"),
        ("kv_reserve", "KV"),
        ("embedding", "embedding"),
        ("head", "head"),
    )
    told = [f"{name} {size_text(made.bytes[key])}" for key, name in names if made.bytes[key]]
    total, capacity = size_text(made.bytes["total"]), size_text(made.bytes["capacity"])
    return f"{' + '.join(told)} = {total} of {capacity}"


def _more(
    model: ModelView, shape: ModelShape, slices: Sequence[Slice], plans: Sequence[Plan]
) -> list[tuple[str, str]]:
    """How many further Hosts of this size until every layer is held, and is Robust."""
    before = [*slices, *(made.slice for made in plans[:-1])]
    last, target = plans[-1], model.target_replicas
    further = more_hosts(last, shape, before, target_replicas=target)
    what = change(model.layers, before, last.slice, target)
    return [("hosts", more_hosts_text(further, what, target))]


def with_count(text: str, step: int) -> str:
    """What is typed for `step` Hosts more: `2 GB` becomes `2 x 2 GB`."""
    try:
        _, count = parse_hosts(text)
    except UsageError:
        return text
    count = max(1, min(MAX_COUNT, count + step))
    match = _HOSTS.match(text)
    size = (match[2] if match else text).strip()
    return f"{count} x {size}" if count > 1 else size
