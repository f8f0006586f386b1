"""Needs: which model of the network a Host without one of its own should hold.

A gap comes before layers below the target, and those before redundancy, as in the planner; here
the choice is between models. What a Host could not mend does not count as a need of it.
"""

from __future__ import annotations

import hashlib
from heapq import nsmallest
from typing import TYPE_CHECKING, Literal

import msgspec

from diffuse_core.domain.coverage import COMMITTED, READY, by_model, cover, held_slices, holders
from diffuse_core.domain.forecast import Change, change
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.outlook import became_text
from diffuse_core.domain.planner import DEFAULT_TARGET, Plan, plan
from diffuse_core.domain.records import ModelRef
from diffuse_core.domain.selection import fetch_name
from diffuse_core.domain.shapes import Contract
from diffuse_core.domain.standing import counted
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from diffuse_core.domain.members import Member

Effect = Literal["fills", "reinforces", "adds", "none"]
EFFECTS: tuple[Effect, ...] = ("fills", "reinforces", "adds", "none")
"""What a Host would do for a model, the most needed first."""
MAX_MODELS = 512
"""Models that are reckoned with, those with the most Hosts; records may name any number."""
BUSY_SESSIONS = 4
"""Sessions from which a Host counts as busy: what it says of itself counts no further."""


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What one model needs of one Host. `plan` and `change` are None when it can do nothing.

    `sessions` is about how many run through the model now; `reason` is for people.
    """

    model: ModelRef
    effect: Effect
    plan: Plan | None
    change: Change | None
    sessions: float
    reason: str


class Means(msgspec.Struct, frozen=True):
    """What a Host has to offer: bytes for weights and KV, and the contracts that it computes."""

    own: NodeId
    capacity: int
    contracts: frozenset[Contract]
    max_layers: int | None = None
    target_replicas: int = DEFAULT_TARGET


def needs(members: Sequence[Member], means: Means) -> tuple[Need, ...]:
    """Every model of the network, the one that needs this Host most first.

    What other Hosts claim or load counts as held, what this Host holds does not. The order:
    what this Host would do (fill a gap, reinforce, add redundancy, nothing); fewest holders of
    the weakest range relative to the target; whether that range is mended as a whole; how many
    Hosts it has, busy ones for half as much again; how little is missing then; and last a hash of
    Host and model, so that Hosts that see the same picture spread over equal models. Of a great
    many models only those with the most live Hosts are there.
    """
    ranked = []
    for model, group in _foremost(by_model(_without(members, means.own))):
        need = _need(model, group, means)
        ranked.append((_rank(need, _demand(group), means), need))
    return tuple(need for _, need in sorted(ranked, key=lambda one: one[0]))


def robust_without(members: Sequence[Member], means: Means, model: ModelRef) -> bool:
    """Whether `model` stays Robust without this Host; only ready Hosts beyond doubt count."""
    sure = [one for one in _without(members, means.own) if one.liveness == "alive"]
    held = held_slices(sure, model, READY)
    return cover(model.shape.layers, held, means.target_replicas).state == "Robust"


def elsewhere(
    members: Sequence[Member],
    means: Means,
    current: ModelRef,
    passed: Collection[ModelRef] = (),
) -> Need | None:
    """The need of another model for which this Host should leave `current`; None: stay.

    That is when `current` stays Robust without it, and another model has a gap that this Host
    closes so far that it is served. Models in `passed`, and those that nobody can get by their
    name, are none for this Host. Ask again a few
    times before moving: others may see the same, and what one of them claims is no gap any more.
    """
    if not robust_without(members, means, current):
        return None
    for need in needs(members, means):
        if need.effect != "fills" or need.model == current or need.model in passed:
            continue
        if fetch_name(need.model.id) is None:
            continue
        if need.change is not None and not need.change.missing:
            return need
    return None


def _without(members: Sequence[Member], own: NodeId) -> list[Member]:
    return [member for member in members if member.record.node != own]


def _foremost(
    groups: Mapping[ModelRef, Sequence[Member]],
) -> Iterable[tuple[ModelRef, Sequence[Member]]]:
    """The models to reckon with, and the members of each."""
    if len(groups) <= MAX_MODELS:
        return groups.items()

    def rank(one: tuple[ModelRef, Sequence[Member]]) -> tuple[int, str, str, str]:
        model, group = one
        live = sum(member.live for member in group)
        return -live, model.fingerprint, model.id, repr(model.shape)

    return nsmallest(MAX_MODELS, groups.items(), key=rank)


def _demand(group: Sequence[Member]) -> float:
    """How much a model is in use: its live Hosts, each busy one for up to half as much again.

    Sessions are what a Host says of itself, so they never outweigh another Host.
    """
    return sum(
        1 + min(member.record.load.sessions, BUSY_SESSIONS) / BUSY_SESSIONS / 2
        for member in group
        if member.live
    )


def _need(model: ModelRef, members: Sequence[Member], means: Means) -> Need:
    sessions = _sessions(members, model)
    if model.contract not in means.contracts:
        reason = f"in {model.contract}, which is not computed here"
        return _nothing(model, sessions, reason)
    held = held_slices(members, model, COMMITTED)
    target = means.target_replicas
    try:
        made = plan(
            means.capacity,
            model.shape,
            held,
            max_layers=means.max_layers,
            own=means.own,
            target_replicas=target,
            model=model.id,
        )
    except UsageError as error:
        return _nothing(model, sessions, str(error))
    what = change(model.shape.layers, held, made.slice, target)
    return Need(
        model=model,
        effect="fills" if what.closes else "reinforces" if what.raises else "adds",
        plan=made,
        change=what,
        sessions=sessions,
        reason=_reason(made, what, sessions),
    )


def _nothing(model: ModelRef, sessions: float, reason: str) -> Need:
    return Need(
        model=model, effect="none", plan=None, change=None, sessions=sessions, reason=reason
    )


def _reason(made: Plan, what: Change, sessions: float) -> str:
    busy = f", {counted(round(sessions), 'session')}" if round(sessions) else ""
    return f"{made.reason}, {became_text(what)}{busy}"


def _sessions(members: Sequence[Member], model: ModelRef) -> float:
    """Sessions through the model: those of its Hosts, each for its share of the layers."""
    return sum(
        member.record.load.sessions * len(member.record.holding.slice) / model.shape.layers
        for member in holders(members, model, READY)
        if member.record.holding is not None
    )


def _rank(need: Need, demand: float, means: Means) -> tuple[object, ...]:
    model, what = need.model, need.change
    spread = hashlib.sha256(means.own + f"{model.fingerprint}/{model.id}".encode()).digest()
    tie = (spread, model.id, repr(model.shape))
    if what is None:
        return EFFECTS.index(need.effect), 0, False, 0.0, 0.0, *tie
    return (
        EFFECTS.index(need.effect),
        what.min_before,
        what.min_after == what.min_before,
        -demand,
        sum(map(len, what.missing)) / model.shape.layers,
        *tie,
    )
