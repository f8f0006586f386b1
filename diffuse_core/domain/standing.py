"""How a model stands, in words: the one place where states and ranges become sentences."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.shapes import Contract
from diffuse_core.domain.slices import Slice, ranges_where

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from diffuse_core.domain.roles import HoldState
    from diffuse_core.domain.view import Coming, ModelView

NAMED_RANGES = 3
MAX_RUNS = 12
"""Runs of equal replicas that a line lists one by one."""
_DOING: dict[HoldState, str] = {"claiming": "claimed", "loading": "being loaded"}


class Variant(msgspec.Struct, frozen=True):
    """One of the ways in which a model of an id is held: Hosts of two never share a Route."""

    fingerprint: str
    contract: Contract
    state: str
    hosts: int


class Variants(msgspec.Struct, frozen=True):
    """All the ways in which the network holds models of one id."""

    id: str
    variants: tuple[Variant, ...]


def ranges_text(ranges: Sequence[Slice], named: int = NAMED_RANGES) -> str:
    """`layers 10:20`, `layers 0:4 and 8:9`, `layers 0:1, 2:3, 4:5 and 7 more ranges`."""
    return f"layers {listed(ranges, named)}" if ranges else "no layers"


def listed(ranges: Sequence[Slice], named: int = NAMED_RANGES) -> str:
    """`10:20`, `0:4 and 8:9`, `0:1, 2:3, 4:5 and 7 more ranges`; at least one range."""
    names = [str(part) for part in ranges[:named]]
    rest = len(ranges) - len(names)
    if rest:
        return f"{', '.join(names)} and {rest} more range{'s' if rest > 1 else ''}"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def least_text(size: int) -> str:
    """Bytes that are needed, rounded up, so that what is named is enough: `9 MiB`, `1.3 GiB`."""
    mib = math.ceil(size / 2**20)
    return f"{mib} MiB" if mib < 2**10 else f"{math.ceil(size * 10 / 2**30) / 10:.1f} GiB"


def weakness_text(replicas: Sequence[int], target: int) -> str:
    """Of which layers there are the fewest holders: `layers 10:20 have one holder`."""
    lowest = min(replicas)
    weak = ranges_where(count == lowest for count in replicas)
    holders = "one holder" if lowest == 1 else f"{lowest} of {target} holders"
    if len(weak[0]) == len(replicas):
        return f"every layer has {'only ' if lowest == 1 else ''}{holders}"
    return f"{ranges_text(weak)} have {holders}"


def coming_text(coming: Sequence[Coming]) -> str:
    """What will be held soon: `10:20 is being loaded by 1 host, 0:4 is claimed by 2 hosts`."""
    told = [
        f"{one.slice} is {_DOING.get(one.state, one.state)} by {counted(one.hosts, 'host')}"
        for one in coming[:NAMED_RANGES]
    ]
    rest = len(coming) - len(told)
    return ", ".join(told) + (f" and {rest} more range{'s' if rest > 1 else ''}" if rest else "")


def state_text(model: ModelView) -> str:
    """The state, what is weak, and what would mend it.

    E.g. `Fragile: layers 10:20 have one holder; one more 2 GiB host makes it Robust`.
    """
    soon = "" if model.state == "Robust" else coming_text(model.coming)
    told = (f"{model.state}: {lack_text(model)}", soon, remedy_text(model))
    return "; ".join(filter(None, told))


def lack_text(model: ModelView) -> str:
    """What is weak, or that nothing is: `layers 10:20 have one holder`."""
    if model.state == "Robust":
        holders = "a holder" if model.target_replicas == 1 else f"{model.target_replicas} holders"
        return f"every layer has {holders} or more"
    if model.state == "Fragile":
        return weakness_text(model.replicas, model.target_replicas)
    return f"{ranges_text(model.missing)} of {model.layers} are held by no live node"


def remedy_text(model: ModelView) -> str:
    """What would mend it: `one more 2 GiB host makes it Robust`; empty when nothing is lacking."""
    remedy = model.remedy
    if remedy is None or model.state == "Robust":
        return ""
    done = {
        1: "closes the gap" if len(model.missing) == 1 else "closes every gap",
    }.get(remedy.min_replicas, f"gives every layer {remedy.min_replicas} holders")
    if remedy.state == "Robust":
        done = "makes it Robust"
    return f"one more {least_text(remedy.bytes)} host {done}"


def replicas_text(replicas: Sequence[int], target: int) -> str:
    """Holders along the layers: `0:10 x2, 10:20 x1, 20:30 x3`.

    Where there are too many runs, layers with the target or more are not told apart (`x2+`);
    where that is still too many, only the weakest runs are listed.
    """
    runs = _runs(replicas)
    if len(runs) <= MAX_RUNS:
        return ", ".join(f"{part} x{count}" for part, count in runs)
    runs = _runs([min(count, target) for count in replicas])
    keep = sorted(sorted(runs, key=lambda run: (run[1], run[0]))[:MAX_RUNS])
    told = ", ".join(f"{part} x{n}{'+' if n == target else ''}" for part, n in keep)
    rest = len(runs) - len(keep)
    return told + (f" and {counted(rest, 'stronger range')}" if rest else "")


def _runs(counts: Iterable[int]) -> list[tuple[Slice, int]]:
    runs: list[tuple[Slice, int]] = []
    start = 0
    for count, same in groupby(counts):
        end = start + sum(1 for _ in same)
        runs.append((Slice(start, end), count))
        start = end
    return runs


def variants(models: Iterable[ModelView]) -> tuple[Variants, ...]:
    """The models by id: in which contracts and with which fingerprints each is there."""
    found: dict[str, list[Variant]] = {}
    for model in models:
        one = Variant(model.fingerprint, model.contract, model.state, model.hosts)
        found.setdefault(model.id, []).append(one)
    return tuple(Variants(name, tuple(ways)) for name, ways in found.items())


def variants_text(one: Variants) -> str:
    """That the ways of an id share no Route: empty when there is but one."""
    if len(one.variants) < 2:
        return ""
    ways = ", ".join(f"{way.contract} ({way.fingerprint[:12]})" for way in one.variants)
    return (
        f"{one.id} is here in {len(one.variants)} ways that share no route: {ways}; "
        f"{one.id}@FINGERPRINT picks one"
    )


def counted(count: int, noun: str) -> str:
    """`1 host`, `3 hosts`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
