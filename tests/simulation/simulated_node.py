"""Simulated nodes: a real gossip state machine, and the machine and process it lives in."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from diffuse_core.domain.gossip import Gossip
from diffuse_core.domain.messages import AnyMessage, GossipMessage

if TYPE_CHECKING:
    import random

    from simulated_network import SimulatedNetwork

    from diffuse_core.domain.identity import Identity, NodeId

encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)


class Letter:
    """A message as bytes. It is read once: what is read is immutable, all receivers share it."""

    __slots__ = ("_read", "data", "kind", "sender")

    def __init__(self, sender: SimulatedNode, data: bytes, kind: str) -> None:
        self.sender = sender
        self.data = data
        self.kind = kind
        self._read: GossipMessage | None = None

    def read(self) -> GossipMessage:
        """What the bytes say."""
        if self._read is None:
            self._read = _decoder.decode(self.data)
        return self._read


class Liar(Protocol):
    """A node that does not play by the rules."""

    def hears(self, net: SimulatedNetwork, node: SimulatedNode, letter: Letter) -> bool:
        """Something arrived; whether the honest part of the node gets it too."""
        ...


@dataclass(slots=True, eq=False)
class SimulatedNode:
    """`clock_offset` is where its monotonic clock started, `drift` how much too fast it runs."""

    number: int
    identity: Identity
    gossip: Gossip
    running: bool = True
    refuses: bool = False
    paused_until: float = 0.0
    clock_offset: float = 0.0
    drift: float = 0.0
    wall_offset: float = 0.0
    """Seconds by which its wall clock is wrong."""
    slowness: float = 0.0
    """Seconds that it takes over each message, on average."""
    busy_until: float = 0.0
    liar: Liar | None = None
    mail: list[Letter] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    wake_at: float = float("inf")
    life: int = 0
    """Counts its processes, so that timers of an earlier one wake nobody."""

    @property
    def id(self) -> NodeId:
        return self.identity.node

    def local(self, now: float) -> float:
        """Its monotonic clock."""
        return now * (1.0 + self.drift) + self.clock_offset

    def virtual(self, local: float) -> float:
        """The virtual time at which its monotonic clock says that."""
        return (local - self.clock_offset) / (1.0 + self.drift)


_TAKES = frozenset(inspect.signature(Gossip).parameters)


def build_gossip(identity: Identity, rng: random.Random, boot_ms: int, **more: Any) -> Gossip:
    """A gossip state machine; `more` is passed on as far as it takes it."""
    known = {name: value for name, value in more.items() if name in _TAKES}
    return Gossip(identity, rng, boot_ms=boot_ms, **known)
