"""Places: which addresses answered as whom, and which are to be left alone for a while.

Anybody can make up nodes that say they are at somebody else's address, and would so have the
whole network dial it. A place (HOST:PORT, also that inside a relayed address) that refused, was
silent or answered as somebody else therefore rests, whichever node is said to be there; the longer
the more often that happened. It is free for who answered there rightly, and for a node that alone
is said to be there: how often that one is tried is the matter of who keeps an eye on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.domain.bounded import forget_oldest
from diffuse_core.domain.channel import HandshakeFailed
from diffuse_core.domain.reachability import ip_of
from diffuse_core.domain.records import record_node
from diffuse_core.domain.relayed_address import is_relayed, parse_relayed
from diffuse_core.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.members import Member

REST_S = 1.0
REST_LONGEST_S = 60.0
MAX_KEPT = 16384


def _now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class _Rest:
    """Until when, after how many failures, and of the only node that was looked for there."""

    until: float
    failures: int
    only: NodeId | None


class Places:
    """What one node found at the places that it dialled. `now` gives monotonic seconds."""

    def __init__(self, now: Callable[[], float] = _now) -> None:
        self._now = now
        self._homes: dict[str, NodeId] = {}
        self._rests: dict[str, _Rest] = {}

    def is_home(self, address: str, node: NodeId) -> bool:
        """Whether `node`, or the Sentinel of a relayed address, answered there last."""
        place, sentinel = _parts(address)
        return self._homes.get(place) == (sentinel or node)

    def rests(self, address: str, node: NodeId) -> bool:
        """Whether gossip is not to look for `node` there now."""
        if self.is_home(address, node):
            return False
        rest = self._rests.get(place_of(address))
        if rest is None or rest.only == node:
            return False
        # From now on two are said to be there, and neither is free to be tried.
        rest.only = None
        return self._now() < rest.until

    @contextlib.contextmanager
    def looking(self, address: str, node: NodeId | None) -> Iterator[None]:
        """Dial HOST:PORT in this context, for the sake of `node`, and note where that fails.

        Of relayed addresses nothing is noted, here and in `answered`: that is done where their
        Sentinel is dialled.
        """
        try:
            yield
        except Unreachable as error:
            if is_relayed(address):
                raise
            cause = error.__cause__
            if isinstance(cause, HandshakeFailed) and cause.answered is not None:
                self._at_home(place_of(address), cause.answered)
            if node is not None:
                self._failed(place_of(address), node)
            raise

    def answered(self, address: str, node: NodeId) -> None:
        """`node` answered there, as it should."""
        if is_relayed(address):
            return
        place = place_of(address)
        self._rests.pop(place, None)
        self._at_home(place, node)

    def _at_home(self, place: str, node: NodeId) -> None:
        self._homes.pop(place, None)
        self._homes[place] = node
        forget_oldest(self._homes, MAX_KEPT)

    def _failed(self, place: str, node: NodeId) -> None:
        last = self._rests.pop(place, None)
        failures = 0 if last is None else min(last.failures + 1, 16)
        only = node if last is None or last.only == node else None
        until = self._now() + min(REST_S * 2.0**failures, REST_LONGEST_S)
        self._rests[place] = _Rest(until, failures, only)
        forget_oldest(self._rests, MAX_KEPT)


def place_of(address: str) -> str:
    """One spelling of the HOST:PORT that an address has dialled."""
    return _parts(address)[0]


def _parts(address: str) -> tuple[str, NodeId | None]:
    way = parse_relayed(address)
    direct, sentinel = (address, None) if way is None else (way.address, way.sentinel)
    direct = direct.removeprefix("ws://").removesuffix("/").lower()
    host, _, port = direct.rpartition(":")
    ip = _ip(direct)
    if ip is not None and port.isascii() and port.isdigit():
        return f"{ip}:{int(port)}", sentinel
    return f"{host.removesuffix('.')}:{port}", sentinel


def _ip(direct: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    host = direct.rpartition(":")[0].removesuffix(".")
    if host == "localhost":
        return ipaddress.IPv4Address("127.0.0.1")
    if (found := ip_of(direct)) is not None or ":" in host:
        return found
    # The system also takes one number, or hexadecimal ones, for an IP.
    with contextlib.suppress(OSError, ValueError):
        return ipaddress.IPv4Address(socket.inet_aton(host))
    return None


def dialable(address: str) -> bool:
    """Whether an address that somebody else tells of may be dialled at all.

    Not those that mean nobody, a group or only one wire: behind 169.254.0.0/16 clouds keep what
    a machine must not tell.
    """
    way = parse_relayed(address)
    direct = (address if way is None else way.address).removeprefix("ws://").removesuffix("/")
    port = direct.rpartition(":")[2]
    if port.isascii() and port.isdigit() and int(port[:16]) == 0:
        return False
    ip = _ip(direct.lower())
    return ip is None or not (ip.is_unspecified or ip.is_multicast or ip.is_link_local)


def sentinel_addresses(
    members: Iterable[Member], own: NodeId | None, sentinel: NodeId
) -> tuple[str, ...] | None:
    """Where a live Sentinel is dialled, () when it is none, None when nobody is known yet."""
    nobody = True
    for member in members:
        node = record_node(member.record)
        if node == sentinel and member.live and member.record.role == "sentinel":
            return member.record.addresses
        nobody = nobody and (node == own or not member.live)
    return None if nobody else ()
