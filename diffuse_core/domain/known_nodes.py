"""Known nodes: who was seen alive, to be found again without being told where.

A list of at most MAX_KNOWN, the most useful first, kept as JSON. Nodes that we had a channel with
ourselves come before all others: anybody can make up records, as good and as many as they like,
and of nodes known only from those no more than MAX_HEARSAY are kept. What is read back is a file
that anybody may have written: bounded and typed, or refused as a whole.
"""

from __future__ import annotations

import ipaddress
import math
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.records import MAX_ADDRESSES, Address, Digest32, record_node
from diffuse_core.domain.relayed_address import is_relayed
from diffuse_core.domain.roles import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from diffuse_core.domain.members import Member

MAX_KNOWN = 64
MAX_HEARSAY = MAX_KNOWN // 4
MAX_FILE_BYTES = 128 * 2**10

_Unix = Annotated[float, msgspec.Meta(ge=0.0, le=1e11)]


class KnownNode(msgspec.Struct, frozen=True):
    """A node, where it could be dialled, and when it was first and last seen alive (Unix time)."""

    node: Digest32
    addresses: Annotated[
        tuple[Address, ...], msgspec.Meta(min_length=1, max_length=MAX_ADDRESSES + 1)
    ]
    role: Role
    since: _Unix
    seen: _Unix
    direct: bool = False
    """Whether it answered us itself once, rather than others telling that it lives."""

    @property
    def id(self) -> NodeId:
        """Its node id."""
        return NodeId(bytes.fromhex(self.node))


class _File(msgspec.Struct, frozen=True):
    version: Literal[1]
    nodes: Annotated[tuple[KnownNode, ...], msgspec.Meta(max_length=MAX_KNOWN)]


_decoder = msgspec.json.Decoder(_File)


def read_known(data: bytes) -> tuple[KnownNode, ...]:
    """The nodes in a file's bytes.

    Raises:
        ValueError: it is no such file.
    """
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"it is larger than {MAX_FILE_BYTES} bytes")
    return _decoder.decode(data).nodes


def write_known(nodes: tuple[KnownNode, ...]) -> bytes:
    """A file's bytes."""
    return msgspec.json.format(msgspec.json.encode(_File(1, nodes)), indent=1)


def remember(
    known: Iterable[KnownNode],
    members: Iterable[Member],
    reached: Mapping[NodeId, str],
    own: NodeId,
    wall: float,
) -> tuple[KnownNode, ...]:
    """`known` and who is alive now, the most useful first, within the bounds.

    Args:
        known: what was known before.
        members: who is known to the gossip.
        reached: addresses at which we found nodes, other than those they advertise maybe.
        own: ourselves, who are left out.
        wall: Unix time.
    """
    found = {node.id: node for node in known}
    for member in members:
        node = record_node(member.record)
        addresses = (reached[node],) if node in reached else ()
        addresses = tuple(dict.fromkeys((*addresses, *member.record.addresses)))
        if node == own or member.liveness != "alive" or not addresses:
            continue
        before = found.get(node)
        was_direct = before is not None and before.direct
        found[node] = KnownNode(
            node=node.hex(),
            addresses=addresses,
            role=member.record.role,
            since=min(before.since, wall) if before else wall,
            seen=wall,
            direct=member.rtt_s is not None or node in reached or was_direct,
        )
    best = sorted(found.values(), key=lambda node: usefulness(node, wall), reverse=True)
    met = [node for node in best if node.direct]
    hearsay = [node for node in best if not node.direct]
    return tuple((met + hearsay[:MAX_HEARSAY])[:MAX_KNOWN])


def usefulness(node: KnownNode, wall: float) -> tuple[bool, float]:
    """Whether we met it, then how likely it is there again; the greater, the more useful.

    That is: long-lived, a sentinel, public, seen not long ago.
    """
    score = math.log2(1 + max(0.0, node.seen - node.since) / 60)
    score -= math.log2(1 + max(0.0, wall - node.seen) / 3600)
    score += {"sentinel": 6, "host": 0, "client": -4}[node.role]
    return node.direct, score + 3 * any(map(_is_public, node.addresses))


def _is_public(address: str) -> bool:
    if is_relayed(address):
        # It says where the sentinel is, and not for how long the node stays with it.
        return False
    host = address.removeprefix("ws://").rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        # A name is given to machines that stay where they are.
        return "." in host and not host.endswith(".local")
