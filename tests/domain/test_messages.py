"""Messages: every kind survives the wire, and nothing out of bounds gets in."""

from __future__ import annotations

import msgspec
import pytest
from domain_samples import signed

from diffuse_core.domain.coordinates import MAX_US, Coordinate
from diffuse_core.domain.messages import (
    MAX_PUSH,
    Ack,
    AnyMessage,
    Ping,
    PingRequest,
    Pull,
    Push,
    Rumour,
)

NODE = bytes(range(32))
RUMOUR = Rumour(NODE, 5, "suspect")


def _round(message: object) -> object:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=AnyMessage)


@pytest.mark.parametrize(
    "message",
    [
        Ping(1, (RUMOUR,)),
        Ack(2**32 - 1),
        Ack(1, (RUMOUR,), 7, Coordinate((1, -2, 3, 4, 5, 6, 7, 8), 9, 10)),
        PingRequest(3, NODE),
        Pull((RUMOUR,), reply=True),
        Push((signed(1),), (RUMOUR,), last=False),
    ],
)
def test_gossip_survives_the_wire(message: object) -> None:
    assert _round(message) == message


@pytest.mark.parametrize(
    "message",
    [
        Ping(-1),
        Ping(2**32),
        Ping(1, (RUMOUR,) * (MAX_PUSH + 1)),
        Ack(1, place=Coordinate((MAX_US + 1, 0, 0, 0, 0, 0, 0, 0), 0, 0)),
        PingRequest(1, b"short"),
        Pull((Rumour(NODE, 2**63, "alive"),)),
        Pull((Rumour(NODE, 1, "undead"),)),
        Pull((RUMOUR,) * 4097),
        Push((signed(1),) * (MAX_PUSH + 1)),
    ],
)
def test_messages_out_of_bounds_do_not_decode(message: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        _round(message)


def test_every_kind_has_its_own_tag() -> None:
    tags = [kind.__struct_config__.tag for kind in AnyMessage.__args__]
    assert len(set(tags)) == len(tags)
