"""A sentinel's relay and dial-back, real ones: frames of hostile nodes over channels of their own.

Ends that were joined send each other what they please; the rest goes through the codec.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.members import Member
from diffuse_core.domain.records import Holding, ModelRef, Record
from diffuse_core.domain.relay import RelayLimits
from diffuse_core.domain.relay_messages import (
    AskDialBack,
    DeclineCircuit,
    JoinCircuit,
    OpenCircuit,
    Release,
    Reserve,
)
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice
from diffuse_core.services.dial_back import DialBack
from diffuse_core.services.links import Links
from diffuse_core.services.relay import RelayService
from tests.fuzz.hostile_ends import (
    CIRCUIT,
    NODES,
    HostileEnds,
    Step,
    message_on,
    said,
    wait_for,
)
from tests.fuzz.script import script
from tests.fuzz.stage import play, settle

if TYPE_CHECKING:
    from tests.fuzz.virtual_loop import VirtualClock

SCRIPT = True
LIMITS = RelayLimits(
    reservations=3,
    circuits=4,
    circuits_per_target=2,
    circuits_per_source=2,
    offers_per_target=2,
    reserved_s=30,
    node_bytes_per_s=64 * 2**10,
)
_SENTINEL = NodeId(bytes([200]) * 32)
_MODEL = ModelRef("m", "a" * 64, "fp32", ModelShape(4, 8, 16, 32, 64, 64, 64, 8), "b" * 64)
_SERVING = Record(NODES[0], 1, "host", "0.1", holding=Holding(_MODEL, Slice(0, 2), "ready"))
WORDS = (*NODES, CIRCUIT, _SENTINEL)


class _Sentinel:
    """What the relay needs of its node."""

    def __init__(self, network: MemoryNetwork, clock: VirtualClock) -> None:
        self.clock = clock
        self.links = Links(network.transport(_SENTINEL), _SENTINEL)

    def members(self) -> tuple[Member, ...]:
        """One node that serves."""
        return (Member(record=_SERVING, liveness="alive", heard_at=0.0),)


async def _act(data: bytes, clock: VirtualClock) -> str:
    network = MemoryNetwork()
    sentinel = _Sentinel(network, clock)
    transport = network.transport(_SENTINEL)
    listener = await transport.listen("mem", 0, sentinel.links.accept)
    relay = RelayService(sentinel, random.Random(2), LIMITS)
    dial_back = DialBack(sentinel.links, transport, clock)
    relay.start()
    ends = HostileEnds(network, listener.address)
    await ends.play(data)
    figures = relay.figures()
    assert figures.circuits <= LIMITS.circuits
    assert figures.reservations <= LIMITS.reservations
    await ends.leave()
    await settle(LIMITS.stalled_s + LIMITS.reserved_s + 1)
    assert relay.figures().circuits == relay.figures().reservations == 0
    assert not relay._circuits
    assert not relay._reserved
    assert not sentinel.links._surrendered
    await relay.close()
    await dial_back.close()
    await listener.close()
    await sentinel.links.close()
    return f"{figures.reservations} reservations, {figures.circuits} circuits"


def target(data: bytes) -> str:
    """Nothing fails, all stays within its limits, and nothing is left of those that went."""
    return play(partial(_act, data))


def samples() -> dict[str, bytes]:
    """Circuits from beginning to end, and each of their steps gone wrong."""
    reserve = [said(Step.DIAL, 0), message_on(0, Reserve())]
    open_it = [said(Step.DIAL, 1), message_on(1, OpenCircuit(NODES[0]))]
    join_it = [said(Step.DIAL, 0), message_on(2, JoinCircuit(CIRCUIT))]
    begin = [*reserve, *open_it, *join_it]
    talk = [said(Step.FRAME, 1, b"there"), said(Step.FRAME, 2, b"back" * 200)]
    crowd = [one for who in range(6) for one in (said(Step.DIAL, who), message_on(who, Reserve()))]
    asks = [message_on(0, AskDialBack(number, 9440)) for number in range(6)]
    return {
        "life": script(*begin, *talk, said(Step.CLOSE, 1)),
        "broken": script(*begin, *talk, said(Step.BREAK, 2), *talk),
        "idle": script(*begin, wait_for(299.0), *talk, wait_for(301.0), *talk),
        "stalled": script(*begin, said(Step.STALL, 2), said(Step.FLOOD, 1, bytes(900)), *talk),
        "declined": script(*reserve, *open_it, message_on(0, DeclineCircuit(CIRCUIT))),
        "released": script(*begin, message_on(0, Release()), *talk, said(Step.CLOSE, 0)),
        "late": script(*reserve, *open_it, wait_for(6.0), *join_it),
        "early": script(*reserve, *open_it, said(Step.FRAME, 1, b"early"), *join_it),
        "gone": script(*reserve, said(Step.CLOSE, 0), *open_it, *join_it),
        "same": script(*reserve, message_on(0, OpenCircuit(NODES[0])), *open_it),
        "crowd": script(*crowd, *open_it, *open_it, *open_it, *join_it),
        "dial-back": script(said(Step.DIAL, 3), *asks, wait_for(7.0), *asks),
    }
