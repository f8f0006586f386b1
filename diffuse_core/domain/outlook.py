"""Forecasts in words: what a plan changes, and what more memory or more Hosts would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.slices import Slice
from diffuse_core.domain.standing import counted, least_text, listed

if TYPE_CHECKING:
    from diffuse_core.domain.forecast import Change, MoreHosts, MoreMemory
    from diffuse_core.domain.planner import Plan


def change_text(made: Change) -> str:
    """`Incomplete -> Fragile, closes the gap 12:18, least holders 0 -> 1`."""
    told = [became_text(made)]
    if made.closes:
        told.append(f"closes the gap{'s' if len(made.closes) > 1 else ''} {listed(made.closes)}")
    if made.robust and made.robust != made.closes:
        told.append(f"makes {listed(made.robust)} Robust")
    if made.min_before != made.min_after:
        told.append(f"least holders {made.min_before} -> {made.min_after}")
    if made.missing:
        told.append(f"{listed(made.missing)} still missing")
    return ", ".join(told)


def became_text(made: Change) -> str:
    """`Incomplete -> Fragile`, `stays Fragile`."""
    return f"{made.before} -> {made.after}" if made.before != made.after else f"stays {made.after}"


def more_memory_text(more: MoreMemory, now: Plan, as_now: Change, layers: int) -> str:
    """`adding 8 GiB takes 10:18: makes 12:18 Robust, Fragile -> Robust`.

    Only what is gained over the plan `now`, which changes `as_now`, is told.
    """
    part, made = more.plan.slice, more.change
    gains = []
    ends = [
        name
        for name, had, has in (
            ("embedding", now.slice.start == 0, part.start == 0),
            ("head", now.slice.end == layers, part.end == layers),
        )
        if has and not had
    ]
    if part == Slice(0, layers):
        gains.append("holds the whole model")
    elif ends:
        gains.append(f"holds the {' and the '.join(ends)} too")
    if made.closes and made.closes != as_now.closes:
        gap = "gaps" if len(made.closes) > 1 else "gap"
        gains.append(f"closes the {gap} {listed(made.closes)}")
    if made.robust not in ((), made.closes, as_now.robust):
        gains.append(f"makes {listed(made.robust)} Robust")
    if made.after != as_now.after:
        gains.append(f"{made.before} -> {made.after}")
    elif made.min_after != as_now.min_after:
        gains.append(f"least holders {made.min_before} -> {made.min_after}")
    return f"adding {least_text(more.extra)} takes {part}: {', '.join(gains)}"


def more_hosts_text(more: MoreHosts, now: Change, target: int) -> str:
    """`2 more hosts like this one cover the model, 5 make every layer Robust`."""
    robust = f"give every layer {target} holders (Robust)"
    if now.after == "Robust":
        return "none is needed: every layer is Robust"
    if more.covered is None:
        if more.never:
            return "hosts of this size cannot cover the model, however many: more memory can"
        return f"more than {more.limit} more hosts like this one are needed to cover the model"
    told = []
    if more.covered:
        verb = "covers" if more.covered == 1 else "cover"
        told.append(f"{counted(more.covered, 'more host')} like this one {verb} the model")
    if more.robust:
        verb = robust.replace("give", "gives", 1) if more.robust == 1 else robust
        like = "" if told else " like this one"
        told.append(f"{counted(more.robust, 'more host')}{like} {verb}")
    elif more.never:
        told.append(f"hosts of this size cannot {robust}: more memory can")
    else:
        told.append(f"more than {more.limit} more hosts {robust}")
    return ", ".join(told)
