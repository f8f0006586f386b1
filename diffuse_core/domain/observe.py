"""The view builder: members, as one node knows them, become the NetworkView that screens draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.coverage import (
    COMMITTED,
    by_model,
    coming,
    cover,
    held_slices,
    holders,
    models,
    remedy,
)
from diffuse_core.domain.identity import NodeId, node_text, short_text
from diffuse_core.domain.members import Member
from diffuse_core.domain.records import open_record
from diffuse_core.domain.relayed_address import is_relayed, parse_relayed
from diffuse_core.domain.view import Liveness, ModelView, NetworkView, NodeView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from diffuse_core.domain.messages import Rumour
    from diffuse_core.domain.records import ModelRef, Record, SignedRecord


def network_view(
    members: Sequence[Member],
    own: NodeId | None,
    now: float,
    wall: float,
    target_replicas: int,
    sayings: Sayings | None = None,
) -> NetworkView:
    """The whole picture.

    Args:
        members: what gossip (or a finished Pull) knows, the dead ones included.
        own: who looks; None for an observer that is no member.
        now: monotonic seconds, on the clock of `Member.heard_at`.
        wall: Unix time in seconds, for the view's date.
        target_replicas: holders per layer from which a model is Robust.
        sayings: what is kept from one picture of these to the next.
    """
    groups = by_model(members)
    said = (sayings or Sayings()).of(members, own)
    return NetworkView(
        taken_at=wall,
        me=None if own is None else node_text(own),
        nodes=tuple(
            msgspec.structs.replace(
                said[member.record.node],
                liveness=member.liveness,
                last_seen_s=max(0.0, now - member.heard_at),
                rtt_s=member.rtt_s,
                distance_s=None if member.record.node == own else member.distance_s,
            )
            for member in sorted(members, key=lambda member: member.record.node)
        ),
        models=tuple(_model_view(ref, groups[ref], target_replicas) for ref in models(members)),
    )


def members_from_push(
    records: Iterable[SignedRecord], rumours: Iterable[Rumour], now: float
) -> tuple[Member, ...]:
    """The members that an observer learns from all Pushes of one Pull.

    Records that are not sound are dropped, of two of one node the later counts; nodes that said
    farewell are left out. A rumour counts when it is about the record's sequence or a later one.
    """
    latest: dict[bytes, Record] = {}
    for signed in records:
        record = open_record(signed)
        if record is None:
            continue
        known = latest.get(record.node)
        if known is None or known.sequence < record.sequence:
            latest[record.node] = record
    beliefs: dict[bytes, Liveness] = {}
    for rumour in rumours:
        about = latest.get(rumour.node)
        if about is not None and rumour.sequence >= about.sequence:
            beliefs[rumour.node] = rumour.liveness
    return tuple(
        Member(record=record, liveness=beliefs.get(node, "alive"), heard_at=now)
        for node, record in latest.items()
        if not record.left
    )


class Sayings:
    """What nodes say of themselves, worked out once for each record and kept while it stands.

    A picture is taken every second, and of thousands of nodes few have said anything new.
    """

    def __init__(self) -> None:
        self._kept: dict[bytes, tuple[Record, NodeView]] = {}

    def of(self, members: Iterable[Member], own: NodeId | None) -> dict[bytes, NodeView]:
        """By node, a view of it that lacks what others found of it; `own` is always the same."""
        kept: dict[bytes, tuple[Record, NodeView]] = {}
        for member in members:
            record = member.record
            known = self._kept.get(record.node)
            if known is None or known[0] is not record:
                known = (record, _said(record, own))
            kept[record.node] = known
        self._kept = kept
        return {node: view for node, (_, view) in kept.items()}


def _said(record: Record, own: NodeId | None) -> NodeView:
    holding = record.holding
    relayed = filter(None, map(parse_relayed, record.addresses))
    return NodeView(
        node=node_text(record.node),
        short=short_text(record.node),
        role=record.role,
        liveness="alive",
        last_seen_s=0.0,
        version=record.version,
        me=record.node == own,
        addresses=tuple(one for one in record.addresses if not is_relayed(one)),
        relays=tuple(dict.fromkeys(node_text(one.sentinel) for one in relayed)),
        model=holding.model.id if holding else None,
        fingerprint=holding.model.fingerprint if holding else None,
        contract=holding.model.contract if holding else None,
        slice=holding.slice if holding else None,
        state=holding.state if holding else None,
        capacity=record.capacity,
        sessions=record.load.sessions,
        kv_used=record.load.kv_used,
        kv_budget=record.load.kv_budget,
        tokens_per_s=record.load.tokens_per_s,
    )


def _model_view(ref: ModelRef, members: Sequence[Member], target: int) -> ModelView:
    """What is to be told of a model; `members` are its own."""
    coverage = cover(ref.shape.layers, held_slices(members, ref), target)
    return ModelView(
        id=ref.id,
        fingerprint=ref.fingerprint,
        contract=ref.contract,
        layers=ref.shape.layers,
        context=ref.shape.context,
        state=coverage.state,
        servable=coverage.servable,
        missing=coverage.missing,
        replicas=coverage.replicas,
        min_replicas=coverage.min_replicas,
        target_replicas=target,
        hosts=len(holders(members, ref)),
        weakest=coverage.weakest,
        coming=coming(members, ref),
        remedy=remedy(ref.shape, held_slices(members, ref, COMMITTED), target),
        shape=ref.shape,
    )
