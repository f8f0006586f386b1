"""Whether a Stage takes part in a Session: decided before anything is kept for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.domain.session_memory import Wishes, most_rows, session_bytes
from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.messages import Hop, OpenSession
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.domain.slices import Slice

MAX_SESSIONS = 64
MOST_OF_ONE = 48
"""Sessions that one Client may have here: nobody takes all places, for a while, for nothing."""


@dataclass(frozen=True)
class StageTerms:
    """What a Stage can offer at this moment; KV figures (and the like) in bytes."""

    own: NodeId
    model: ModelRef
    held: Slice
    kv_used: int
    kv_budget: int
    sessions: int
    leaving: bool = False
    of_client: int = 0
    """Sessions of the Client that asks."""


def admit(message: OpenSession, terms: StageTerms) -> int:
    """Decide on a Session before anything is kept for it; the bytes it will need.

    They are its KV, what it gives to the next Stage, which is kept for one that may take that
    one's place, and all else that it can come to take (see domain.session_memory).

    Raises:
        Refused: with the reason.
    """
    model = terms.model
    if message.spots and max(message.spots) >= model.shape.hidden:
        raise Refused(f"hidden states have {model.shape.hidden} numbers, counted from 0")
    if message.audit and not message.epoch:
        raise Refused("an audit's session has an epoch above 0")
    check_route(message.route, message.index, model.shape.layers)
    _check_past(message)
    hop = message.route[message.index]
    if message.fingerprint != model.fingerprint:
        raise Refused(f"this host holds {model.id} with other weights or contract", "model")
    if hop.node != terms.own or not terms.held.contains(hop.part):
        raise Refused(f"this host holds layers {terms.held}, not {hop.part}", "slice")
    if message.budget > model.shape.context:
        raise Refused(
            f"{message.budget} positions pass the model's {model.shape.context}", "context"
        )
    if terms.leaving:
        raise Refused("this host is leaving", "leaving")
    if terms.sessions >= MAX_SESSIONS:
        raise Refused(f"{MAX_SESSIONS} sessions run here already", "busy")
    if terms.of_client >= MOST_OF_ONE:
        raise Refused(f"{MOST_OF_ONE} sessions of yours run here already", "busy")
    return _room(message, terms)


def _check_past(message: OpenSession) -> None:
    if message.prompt + message.drawn >= message.budget:
        raise Refused("the budget leaves no position for a token")
    most = message.budget - message.prompt if message.audit else message.drawn
    if len(message.past) > most or len(message.seen) > message.prompt:
        raise Refused("the session brings more tokens than it says it has")
    sampling, last = message.decoding.sampling, message.index == len(message.route) - 1
    if message.audit:
        return
    if last and sampling.needs_past and len(message.past) != message.drawn:
        raise Refused("the tokens that were drawn are needed to go on with penalties")


def _room(message: OpenSession, terms: StageTerms) -> int:
    shape, contract = terms.model.shape, terms.model.contract
    part, wishes = message.route[message.index].part, _wishes(message)
    need = session_bytes(shape, contract, part, message.budget, wishes)
    if need > terms.kv_budget:
        most = most_rows(shape, contract, part, terms.kv_budget, wishes)
        raise Refused(
            f"{message.budget} positions (prompt and answer) are more than this host ever has "
            f"room for: at most {most}",
            "memory",
        )
    free = max(0, terms.kv_budget - terms.kv_used)
    if need > free:
        raise Refused(
            f"{message.budget} positions need {need / 2**20:.1f} MiB of KV and the like; "
            f"{free / 2**20:.1f} of {terms.kv_budget / 2**20:.1f} MiB are free",
            "memory",
        )
    return need


def _wishes(message: OpenSession) -> Wishes:
    decoding = message.decoding
    return Wishes(
        message.prompt,
        len(message.spots),
        decoding.logprobs,
        decoding.sampling.needs_past,
        len(decoding.sampling.logit_bias),
        message.audit,
        message.timed,
        message.index,
    )


def check_route(route: Sequence[Hop], index: int, layers: int) -> None:
    """See that a Route covers all `layers` once, and that `index` is a place in it.

    No node comes twice, but for the Client's own, which may run the first and the last Stage of
    a Route that leads through others.

    Raises:
        Refused: it does not.
    """
    edge = 0
    for hop in route:
        if hop.part.start != edge:
            raise Refused(f"the route jumps from layer {edge} to {hop.part.start}")
        edge = hop.part.end
    if edge != layers:
        raise Refused(f"the route ends at layer {edge} of {layers}")
    nodes = [hop.node for hop in route]
    if len(nodes) > 2 and nodes[0] == nodes[-1]:
        nodes.pop()
    if len(set(nodes)) != len(nodes):
        raise Refused("the route visits a node twice")
    if index >= len(route):
        raise Refused("the stage index lies outside the route")
