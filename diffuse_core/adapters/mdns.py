"""Nodes of a LAN by multicast DNS and DNS-based service discovery (RFC 6762, RFC 6763).

A node is an instance of `_diffuse._tcp`: the channel is a WebSocket, so TCP. Its TXT record has

    v    the protocol's major version
    net  the tag of the network's name, as the handshake shows it in clear
    id   the node id; not on a network with a key, where nobody is to learn ids without it
    key  1 on a network with a key, of which nothing else is shown

Whatever is received was said by anybody on the LAN: bounded, checked, and good for a dial only.
Only addresses of the LANs that this machine is on are taken; others would make a node dial
machines elsewhere for whoever announces them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import secrets
from dataclasses import dataclass
from ipaddress import IPv4Interface
from typing import TYPE_CHECKING, Any

import psutil

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import PROTOCOL_MAJOR
from diffuse_core.errors import Unreachable
from diffuse_core.ports import LanNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

log = logging.getLogger(__name__)

SERVICE = "_diffuse._tcp.local."
MAX_SEEN = 64
MAX_ASKING = 8
MAX_ADDRESSES = 4
RESOLVE_MS = 3000
CLOSE_S = 2.0

_ID = re.compile(rb"[0-9a-f]{64}")


def lan_interfaces(host: str) -> tuple[IPv4Interface, ...]:
    """Addresses of this machine's LANs that a node listening at `host` can be dialled at.

    None when it listens on loopback, or on IPv6 only.
    """
    up = {
        name
        for name, status in psutil.net_if_stats().items()
        # Other systems than Linux tell no flags.
        if status.isup and (not status.flags or "multicast" in status.flags)
    }
    found = []
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            with contextlib.suppress(ValueError):
                address = IPv4Interface(f"{entry.address}/{entry.netmask or 32}")
                if name in up and not address.is_loopback:
                    found.append(address)
    if host in ("0.0.0.0", ""):  # noqa: S104  (compared with, never bound)
        return tuple(found)
    return tuple(address for address in found if str(address.ip) == host)


@dataclass(frozen=True)
class Announcement:
    """What a node says of itself."""

    node: NodeId
    port: int


class MdnsLan:
    """Implements ports.Lan.

    Args:
        interfaces: where to ask and to answer.
        tag: of the network's name.
        keyed: whether the network has a key.
        announcement: what to say of this node; None for who only looks.
    """

    def __init__(
        self,
        interfaces: tuple[IPv4Interface, ...],
        tag: bytes,
        *,
        keyed: bool,
        announcement: Announcement | None = None,
    ) -> None:
        self._interfaces = interfaces
        self._tag = tag
        self._keyed = keyed
        self._announcement = announcement
        self._zeroconf: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(MAX_ASKING)
        self._seen: dict[str, LanNode] = {}
        self._own = ""
        self._found: Callable[[LanNode], None] = lambda _: None
        self._lost: Callable[[LanNode], None] = lambda _: None

    async def open(
        self, found: Callable[[LanNode], None], lost: Callable[[LanNode], None]
    ) -> None:
        """Look from now on (see ports.Lan.open)."""
        self._found, self._lost = found, lost
        if not self._interfaces:
            raise Unreachable("this machine is on no LAN")
        # Some 50 ms in a process that may be computing.
        await asyncio.to_thread(_load)
        from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

        try:
            self._zeroconf = AsyncZeroconf(
                interfaces=[str(interface.ip) for interface in self._interfaces]
            )
            await self._zeroconf.zeroconf.async_wait_for_start()
            self._browser = AsyncServiceBrowser(
                self._zeroconf.zeroconf, SERVICE, handlers=[self._on_change]
            )
        except BaseException as error:
            await self.close()
            if not isinstance(error, Exception):
                raise
            raise Unreachable(f"multicast DNS does not work here: {error}") from error

    async def announce(self) -> None:
        """Say that this node is there (see ports.Lan.announce)."""
        if self._zeroconf is None or self._announcement is None:
            return
        info = self._info(self._announcement)
        try:
            # The first waits until nobody else has the name, the second until it was told.
            told = await self._zeroconf.async_register_service(info, allow_name_change=True)
            await told
        except Exception as error:
            raise Unreachable(f"cannot announce this node on the LAN: {error}") from error

    async def close(self) -> None:
        """Take back what was said, and stop (see ports.Lan.close)."""
        zeroconf, self._zeroconf = self._zeroconf, None
        for task in self._asking.values():
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=CLOSE_S)
        if zeroconf is None:
            return
        from zeroconf import Error

        try:
            async with asyncio.timeout(CLOSE_S):
                if self._browser is not None:
                    await self._browser.async_cancel()
                await zeroconf.async_close()
        except (Error, OSError) as error:
            log.debug("multicast DNS did not end in order: %s", error)

    def _info(self, said: Announcement) -> AsyncServiceInfo:
        from zeroconf.asyncio import AsyncServiceInfo

        instance = secrets.token_hex(16) if self._keyed else said.node.hex()[:32]
        self._own = f"{instance}.{SERVICE}"
        properties = {"v": str(PROTOCOL_MAJOR), "net": self._tag.hex()}
        properties |= {"key": "1"} if self._keyed else {"id": said.node.hex()}
        return AsyncServiceInfo(
            SERVICE,
            self._own,
            addresses=[interface.ip.packed for interface in self._interfaces],
            port=said.port,
            properties=properties,
            server=f"diffuse-{instance[:12]}-{said.port}.local.",
        )

    def _on_change(self, zeroconf: Any, service_type: str, name: str, state_change: Any) -> None:
        """Called by zeroconf, in the loop, with what a browser saw."""
        if state_change.name == "Removed":
            self._forget(name)
            return
        room = name in self._seen or len(self._seen) < MAX_SEEN
        busy = name in self._asking or len(self._asking) >= MAX_SEEN
        if room and not busy and name != self._own:
            task = asyncio.create_task(self._ask(zeroconf, name), name=f"mdns {name[:48]}")
            self._asking[name] = task
            task.add_done_callback(lambda _: self._asking.pop(name, None))

    async def _ask(self, zeroconf: Any, name: str) -> None:
        from zeroconf import Error
        from zeroconf.asyncio import AsyncServiceInfo

        try:
            info = AsyncServiceInfo(SERVICE, name)
            async with self._turns:
                answered = await info.async_request(zeroconf, RESOLVE_MS)
            node = self._read(info) if answered else None
        except (Error, OSError, ValueError) as error:
            log.debug("what is announced as %r cannot be read: %s", name[:80], error)
            return
        if node is None or self._seen.get(name) == node:
            return
        self._forget(name)
        self._seen[name] = node
        self._found(node)

    def _forget(self, name: str) -> None:
        if (node := self._seen.pop(name, None)) is not None:
            self._lost(node)

    def _read(self, info: AsyncServiceInfo) -> LanNode | None:
        """The node of our network that is announced, or None."""
        said = info.properties
        ours = {b"v": str(PROTOCOL_MAJOR).encode(), b"net": self._tag.hex().encode()}
        if any(said.get(name) != value for name, value in ours.items()):
            return None
        if (said.get(b"key") == b"1") != self._keyed:
            return None
        told = said.get(b"id") or b""
        if not self._keyed and not _ID.fullmatch(told):
            return None
        addresses = tuple(
            f"{address}:{info.port}"
            for address in info.parsed_addresses()
            if self._is_near(address)
        )[:MAX_ADDRESSES]
        if not addresses or not info.port:
            return None
        return LanNode(addresses, None if self._keyed else NodeId(bytes.fromhex(told.decode())))

    def _is_near(self, address: str) -> bool:
        found = ipaddress.ip_address(address)
        return any(found in interface.network for interface in self._interfaces)


def _load() -> None:
    """Import zeroconf, and keep its complaints about hostile packets out of our log."""
    import zeroconf.asyncio  # noqa: F401

    logging.getLogger("zeroconf").setLevel(logging.CRITICAL)
