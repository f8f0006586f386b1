"""The allow list: the only nodes that this one talks to, and whose word it takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import Ack, GossipMessage, Ping, PingRequest, Pull, Push, Rumour
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from diffuse_core.domain.records import SignedRecord

MAX_IDS = 10_000
_ID = re.compile("[0-9a-fA-F]{64}")


class _Owner(msgspec.Struct, frozen=True):
    """What of a record says whose it is."""

    node: bytes


_owner_decoder = msgspec.msgpack.Decoder(_Owner)


def parse_id(text: str, place: str) -> NodeId:
    """A full node id; `place` says where it was written.

    Raises:
        UsageError: it is none.
    """
    if not _ID.fullmatch(text):
        short = " (a short one, as lists show it, is not enough)" if _short(text) else ""
        raise UsageError(
            f"{place}: {text[:80]!r} is no node id{short}; write all 64 hexadecimal digits, as a "
            "node prints them when it starts, or `diffuse status --json`"
        )
    return NodeId(bytes.fromhex(text))


def parse_lines(text: str, name: str) -> frozenset[NodeId]:
    """The ids of a file called `name`: one a line, `#` begins a comment.

    Raises:
        UsageError: a line has no id, or there is none at all or too many.
    """
    found = set()
    for number, line in enumerate(text.splitlines(), start=1):
        if word := line.partition("#")[0].strip():
            found.add(parse_id(word, f"{name}, line {number}"))
    if not 0 < len(found) <= MAX_IDS:
        raise UsageError(f"{name} lists {len(found)} node ids; list 1 to {MAX_IDS}")
    return frozenset(found)


def without_strangers(message: GossipMessage, allowed: Collection[NodeId]) -> GossipMessage | None:
    """A gossip message without what it says of nodes that are not allowed; None if all is."""
    match message:
        case PingRequest():
            return message if message.target in allowed else None
        case Pull():
            digest = _of_allowed(message.digest, allowed)
            return msgspec.structs.replace(message, digest=digest)
        case Push():
            records = tuple(signed for signed in message.records if _owner(signed) in allowed)
            rumours = _of_allowed(message.rumours, allowed)
            return msgspec.structs.replace(message, records=records, rumours=rumours)
        case Ping() | Ack():
            rumours = _of_allowed(message.rumours, allowed)
            return msgspec.structs.replace(message, rumours=rumours)
        case _:
            return message


def _of_allowed(rumours: Iterable[Rumour], allowed: Collection[NodeId]) -> tuple[Rumour, ...]:
    return tuple(rumour for rumour in rumours if rumour.node in allowed)


def _owner(signed: SignedRecord) -> bytes:
    """Whose a record claims to be; the signature is checked by whoever takes it in."""
    try:
        return _owner_decoder.decode(signed.payload).node
    except (msgspec.DecodeError, ValueError):
        return b""


def _short(text: str) -> bool:
    return 4 <= len(text) < 64 and re.fullmatch("[0-9a-fA-F]+", text) is not None
