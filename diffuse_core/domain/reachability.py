"""Reachability: whether others can dial a node, found out by asking sentinels to dial it back.

A sentinel dials at the address that it sees the node at, and nowhere else (`dial_back_address`).
The node believes that it was reached only when the sentinel's channel really came in, so nobody
can talk it into being reachable. Where it came in is its word alone, and from the same LAN it may
come in and name anybody's address: a public one is believed when a second one came in there, when
the user named the sentinel, or when it came in from outside itself. Who was reached there stays so
whatever others say, so nobody can talk it out of it (`DialBacks`). What a single liar can do is to
have a node hold a reservation that it does not need, or add one address that leads nowhere.

Pure: the caller says what time it is and which sentinels live, asks those that `due` gives, and
reports back.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from diffuse_core.domain.records import MAX_ADDRESSES
from diffuse_core.domain.relayed_address import is_relayed

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from diffuse_core.domain.identity import NodeId

RelayMode = Literal["auto", "always", "never"]
"""Whether others are to reach a node through sentinels: when they cannot dial it, in any case, or
in no case."""

MAX_SENTINELS = 3
"""So many are asked."""
FIRST_S = 0.5
"""From meeting a sentinel to asking it: many nodes may have met it at the same moment."""
RECHECK_S = 600.0
UNREACHED_S = 60.0
"""To the next try after a sentinel did not reach us; doubles up to RECHECK_S."""
SILENT_S = 30.0
"""Likewise after it said nothing."""
PAUSE_S = 15.0
"""One sentinel is never asked more often than this, and more rarely after asking in vain."""
MAX_NEAR = 2
"""Of its own addresses a node that cannot be dialled from outside still tells so many."""

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
_LOOPBACK, _PRIVATE, _PUBLIC = range(3)


def ip_of(address: str) -> Ip | None:
    """The IP of IP:PORT or [IP]:PORT; None when it is a name, has a scope, or is malformed.

    An IPv4 address that is written as an IPv6 one is the IPv4 address.
    """
    host, _, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not port.isascii() or not port.isdigit() or bracketed != (":" in host):
        return None
    try:
        ip = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        return None if ip.scope_id is not None else ip.ipv4_mapped or ip
    return ip


def neighbourhood(ip: Ip) -> str:
    """Whom an IP stands for when it comes to limits: of IPv6 everybody has a /64."""
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)


def dial_back_address(seen: str, port: int) -> str | None:
    """Where a sentinel may dial a node back; None when nowhere.

    The IP is the one that the node's own channel comes from, which nobody can forge, so the
    sentinel can be sent to no third machine: a caller from outside never leads it into a private
    range, a caller on this machine never leads it off it. Addresses that mean a group, nobody or
    only one wire are of no use to others and refused.

    Args:
        seen: IP:PORT that the node's channel comes from.
        port: what the node asked for.
    """
    ip = ip_of(seen)
    if ip is None or _reach(ip) is None or not 0 < port < 2**16:
        return None
    return f"[{ip}]:{port}" if isinstance(ip, ipaddress.IPv6Address) else f"{ip}:{port}"


def _reach(ip: Ip) -> int | None:
    """How far an address leads; None for one that leads to no single machine."""
    if ip.is_loopback:
        return _LOOPBACK
    if ip.is_multicast or ip.is_unspecified or ip.is_link_local or ip.is_reserved:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        # Tunnels carry what is sent there to an IPv4 address, which may be anybody's.
        inside = [ip.sixtofour, *(ip.teredo or ())]
        if any(tunnelled is not None and not tunnelled.is_global for tunnelled in inside):
            return None
    elif ip in _THIS_NETWORK:
        return None
    return _PUBLIC if ip.is_global else _PRIVATE


def _reach_of(address: str) -> int:
    """How far an address that a user gave is meant to lead; a name is for all the world."""
    ip = ip_of(address)
    reach = None if ip is None else _reach(ip)
    return _PUBLIC if reach is None else reach


@dataclass(frozen=True)
class Verdict:
    """What is known of how others reach this node; nothing at all as long as both are empty.

    `reached` are the addresses at which sentinels reached it, those for all the world first.
    `unreached` are the sentinels that did not, and where they tried: those whose part of the
    internet cannot dial this node.
    """

    reached: tuple[str, ...] = ()
    unreached: tuple[tuple[NodeId, str], ...] = ()


@dataclass(frozen=True)
class _Answer:
    reached: bool
    address: str
    family: int
    reach: int
    outside: bool = False
    """Whether the sentinel came in from a public address."""


@dataclass(eq=False)
class _Asked:
    due_at: float
    asked_at: float | None = None
    waiting: bool = False
    vain: int = 0
    """How often in a row it did not reach us, or said nothing."""
    answer: _Answer | None = None
    named: bool = False
    """By the user."""

    @property
    def pending(self) -> bool:
        """Whether it had no chance to answer yet."""
        return self.answer is None and self.vain == 0


class DialBacks:
    """Whom to ask when, and what follows from the answers. The last verdict holds until a new."""

    def __init__(
        self, port: int, own: Sequence[str], rng: random.Random, *, forwarded: bool = False
    ) -> None:
        """Begin to know nothing.

        Args:
            port: that sentinels dial: addresses with another one are nobody's answer.
            own: where others are to dial us. A node that listens elsewhere need not do so on
                loopback, where a sentinel on the same machine would dial it.
            rng: spreads the asking, and chooses among strangers.
            forwarded: `port` is not the one that we listen on; a sentinel on our side of what
                forwards it cannot say whether that does.
        """
        self._port = port
        self._least = _LOOPBACK + 1 if _without_loopback(own) else _LOOPBACK
        if forwarded:
            self._least = max(map(_reach_of, own), default=_LOOPBACK)
        self._rng = rng
        self._asked: dict[NodeId, _Asked] = {}
        self.verdict = Verdict()

    def due(self, trusted: Sequence[NodeId], others: Sequence[NodeId], now: float) -> list[NodeId]:
        """Whom to ask now. Each must be reported once, as `answered` or `silent`.

        Args:
            trusted: live sentinels that the user named, who are asked before all others.
            others: other live sentinels; anybody may pretend to be any number of them, so it is
                left to chance which are asked.
            now: monotonic seconds.
        """
        kept = [node for node in self._asked if node in others]
        drawn = self._rng.sample(others, len(others)) if len(kept) < MAX_SENTINELS else []
        wanted = tuple(dict.fromkeys((*trusted, *kept, *drawn)))[:MAX_SENTINELS]
        gone = [node for node in self._asked if node not in wanted]
        for node in gone:
            del self._asked[node]
        for node in wanted:
            if node not in self._asked:
                self._asked[node] = _Asked(now + FIRST_S * self._jitter())
            self._asked[node].named = node in trusted
        if gone:
            self._decide()
        chosen = [
            node
            for node, asked in self._asked.items()
            if not asked.waiting and asked.due_at <= now
        ]
        for node in chosen:
            asked = self._asked[node]
            asked.waiting, asked.asked_at = True, now
        return chosen

    def answered(
        self,
        sentinel: NodeId,
        reached: bool,
        address: str,
        *,
        met: bool,
        now: float,
        came_from: str = "",
    ) -> None:
        """A sentinel told whether it reached us, and where.

        Args:
            sentinel: who told it.
            reached: what it says.
            address: where it says that it tried.
            met: whether it really came in.
            now: monotonic seconds.
            came_from: IP:PORT that its channel came from; of no use when not known.
        """
        asked = self._asked.get(sentinel)
        if asked is None or not asked.waiting:
            return
        came = ip_of(came_from)
        outside = came is not None and _reach(came) == _PUBLIC
        answer = self._understood(reached, address, outside=outside)
        if answer is None or (reached and not met) or self._beside_the_point(answer):
            self.silent(sentinel, now)
            return
        if not reached and asked.answer is not None and asked.answer.reached and not asked.vain:
            # It may have been a moment's trouble: heard again before we look for relays.
            self.silent(sentinel, now)
            return
        asked.waiting = False
        asked.answer = answer
        asked.vain = 0 if reached else asked.vain + 1
        pause = RECHECK_S if reached else min(UNREACHED_S * 2.0 ** (asked.vain - 1), RECHECK_S)
        asked.due_at = now + pause * self._jitter()
        self._decide()

    def silent(self, sentinel: NodeId, now: float) -> None:
        """A sentinel could not be asked, did not answer, or answered what says nothing."""
        asked = self._asked.get(sentinel)
        if asked is None or not asked.waiting:
            return
        asked.waiting = False
        asked.vain = min(asked.vain + 1, 16)
        asked.due_at = now + min(SILENT_S * 2.0 ** (asked.vain - 1), RECHECK_S) * self._jitter()
        self._decide()

    def asked(self) -> frozenset[NodeId]:
        """The sentinels that are asked now and then."""
        return frozenset(self._asked)

    def cut_off(self, now: float) -> None:
        """Every link to a sentinel ended: we may be on another network now. Ask soon."""
        for asked in self._asked.values():
            earliest = now
            if asked.asked_at is not None:
                earliest = max(now, asked.asked_at + PAUSE_S * 2.0 ** min(asked.vain, 5))
            asked.due_at = min(asked.due_at, earliest + FIRST_S * self._jitter())

    def _understood(self, reached: bool, address: str, *, outside: bool) -> _Answer | None:
        ip = ip_of(address)
        reach = None if ip is None else _reach(ip)
        if ip is None or reach is None or address.rpartition(":")[2] != str(self._port):
            return None
        host = f"[{ip}]" if isinstance(ip, ipaddress.IPv6Address) else str(ip)
        return _Answer(reached, f"{host}:{self._port}", ip.version, reach, outside)

    def _beside_the_point(self, answer: _Answer) -> bool:
        return not answer.reached and answer.reach < self._least

    def _decide(self) -> None:
        heard = [(node, asked.answer) for node, asked in self._asked.items() if asked.answer]
        if not heard:
            return
        sure = self._sure()
        good = [
            answer
            for _, answer in heard
            if answer.reached
            and (answer.reach < _PUBLIC or answer.outside or answer.address in sure)
        ]
        bad = [
            (node, answer.address)
            for node, answer in heard
            if not answer.reached and not any(_overrules(one, answer, sure) for one in good)
        ]
        waiting = any(asked.pending for asked in self._asked.values())
        if len(bad) < 2 and waiting:
            bad = []
        if good or bad:
            self.verdict = Verdict(_best(good), tuple(bad))

    def _sure(self) -> set[str]:
        """The addresses at which two sentinels came in, or one that the user named."""
        weight: dict[str, int] = {}
        for asked in self._asked.values():
            if asked.answer is not None and asked.answer.reached:
                address = asked.answer.address
                weight[address] = weight.get(address, 0) + (2 if asked.named else 1)
        return {address for address, votes in weight.items() if votes > 1}

    def _jitter(self) -> float:
        return 0.75 + self._rng.random() / 2


def _overrules(good: _Answer, bad: _Answer, sure: set[str]) -> bool:
    """Whether that we were reached at one address settles that we were not at another.

    For its own address it does. Another one is settled when all the world surely reaches us: the
    way out over which that sentinel sees us need not be the one that others come in by.
    """
    if good.address == bad.address:
        return True
    return good.family == bad.family and good.reach == _PUBLIC and good.address in sure


def _best(good: list[_Answer]) -> tuple[str, ...]:
    """One address for each family and reach: the one most sentinels named, of equals the first."""
    votes: dict[tuple[int, int], dict[str, int]] = {}
    for answer in good:
        told = votes.setdefault((answer.reach, -answer.family), {})
        told[answer.address] = told.get(answer.address, 0) + 1
    return tuple(
        max(votes[key], key=votes[key].__getitem__) for key in sorted(votes, reverse=True)
    )


def told_addresses(
    mode: RelayMode,
    verdict: Verdict,
    own: Sequence[str],
    relayed: Sequence[str],
    *,
    named: bool = False,
) -> tuple[str, ...]:
    """What a node tells others to dial, the best first.

    Args:
        mode: as the user chose.
        verdict: what sentinels found.
        own: the addresses of its interfaces, or those that the user gave.
        relayed: its relayed addresses, as long as it holds reservations.
        named: the user gave `own`, so they stand first whatever was found, and no others beside
            them but the relayed ones.
    """
    if mode == "always":
        return tuple(relayed)[:MAX_ADDRESSES]
    if mode == "never":
        return tuple(own)[:MAX_ADDRESSES]
    if named:
        after = tuple(relayed)[:MAX_NEAR] if verdict.unreached else ()
        return (*own[: MAX_ADDRESSES - len(after)], *after)
    # Elsewhere a loopback address leads to whoever is there, and never to us.
    useful = _without_loopback(verdict.reached) if _without_loopback(own) else verdict.reached
    direct = tuple(dict.fromkeys((*useful, *own)))
    if not verdict.unreached or not relayed:
        return direct[:MAX_ADDRESSES]
    near = direct[:MAX_NEAR]
    return (*near, *relayed)[:MAX_ADDRESSES]


def _without_loopback(addresses: Iterable[str]) -> tuple[str, ...]:
    ips = ((address, ip_of(address)) for address in addresses if not is_relayed(address))
    return tuple(address for address, ip in ips if ip is None or not ip.is_loopback)
