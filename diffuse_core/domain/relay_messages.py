"""Messages of nodes that cannot be dialled and of the Sentinels that help them.

See domain.messages, of which these are a part.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from diffuse_core.domain.identity import WireNodeId
from diffuse_core.domain.wire import Message, Nonce, Text

Port = Annotated[int, msgspec.Meta(ge=1, lt=2**16)]
CircuitId = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
RelayProblem = Literal["unknown", "busy", "limit", "gone"]
"""No live reservation of that node; all of the Sentinel's room is taken; this node has as much as
one node may have; the other end did not come, or ended."""


class AskDialBack(Message, frozen=True, tag="askdial"):
    """Node to Sentinel: dial me at the address you see me at, on this port."""

    nonce: Nonce
    port: Port


class DialledBack(Message, frozen=True, tag="dialled"):
    """Sentinel to node: where it dialled, and whether the node answered there.

    `address` is empty when it did not dial: it is asked too often.
    """

    nonce: Nonce
    reached: bool
    address: Annotated[str, msgspec.Meta(max_length=128)] = ""


class Reserve(Message, frozen=True, tag="reserve"):
    """Node to Sentinel: let others reach me through you, over this link; again to renew."""


class Reserved(Message, frozen=True, tag="reserved"):
    """Sentinel to node: so it is, for so many seconds or until this link ends."""

    seconds: Annotated[int, msgspec.Meta(ge=1, le=86_400)]


class Release(Message, frozen=True, tag="release"):
    """Node to Sentinel: I need the reservation no more."""


class RelayRefused(Message, frozen=True, tag="norelay"):
    """Sentinel to node: no reservation, or no circuit. Also a reservation that is taken back."""

    problem: RelayProblem
    detail: Text = ""


class OpenCircuit(Message, frozen=True, tag="circuit"):
    """First message on a channel of its own: join it to one of `target`, which has a reservation.

    After CircuitReady the channel carries pieces (see domain.circuit_pieces) and no messages.
    """

    target: WireNodeId


class CircuitOffered(Message, frozen=True, tag="offered"):
    """Sentinel to the node with the reservation: `source` asks for you; join or decline."""

    circuit: CircuitId
    source: WireNodeId


class JoinCircuit(Message, frozen=True, tag="join"):
    """First message on a channel of its own: the other half of a circuit that was offered."""

    circuit: CircuitId


class DeclineCircuit(Message, frozen=True, tag="decline"):
    """Node to Sentinel: I do not want that circuit."""

    circuit: CircuitId


class CircuitReady(Message, frozen=True, tag="circuitready"):
    """Sentinel to both halves: what is sent from now on goes to the other end."""


RelayMessage = (
    AskDialBack
    | DialledBack
    | Reserve
    | Reserved
    | Release
    | RelayRefused
    | OpenCircuit
    | CircuitOffered
    | JoinCircuit
    | DeclineCircuit
    | CircuitReady
)
