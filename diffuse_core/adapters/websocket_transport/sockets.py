"""Addresses and TCP sockets, with errors that say which step failed."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
from typing import Any

from diffuse_core.errors import Unreachable

MAX_ADDRESSES = 8
_ADDRESS = re.compile(r"(?:ws://)?(?:\[([0-9A-Za-z:.%]+)\]|([^\s/@?#:\[\]]{1,253})):(\d{1,5})/?")

_Info = tuple[Any, Any, int, str, Any]


def split_address(address: str) -> tuple[str, int]:
    """Host and port of HOST:PORT or [IPV6]:PORT, also with a `ws://` prefix.

    Raises:
        Unreachable: it is no address.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match[3]) < 2**16:
        raise Unreachable(f"{address!r} is no address; write HOST:PORT, e.g. 192.168.1.20:9440")
    return match[1] or match[2], int(match[3])


async def open_socket(host: str, port: int, address: str) -> socket.socket:
    """A connected TCP socket; the host's addresses are tried in their order.

    Raises:
        Unreachable: no such host, or none of its addresses let us in.
    """
    problem: OSError | None = None
    infos = await _resolve(host, port)
    for info in infos[:MAX_ADDRESSES]:
        try:
            return await _connect(info)
        except OSError as error:
            problem = error
    raise Unreachable(_problem_text(address, problem)) from problem


async def _resolve(host: str, port: int) -> list[_Info]:
    try:
        # A number needs no look-up, and so no thread.
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        pass
    try:
        loop = asyncio.get_running_loop()
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"no host is called {host!r}; check the address") from error


async def _connect(info: _Info) -> socket.socket:
    family, kind, protocol, _, sockaddr = info
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, sockaddr)
    except BaseException:
        sock.close()
        raise
    return sock


def _problem_text(address: str, problem: OSError | None) -> str:
    code = problem.errno if problem else None
    if code == errno.ECONNREFUSED:
        return f"nothing listens at {address}: start the node there, or check the address"
    if code in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return f"there is no way to {address} from this machine; check the network"
    if code == errno.ETIMEDOUT:
        return f"no answer from {address}; check the address, firewalls and that the node runs"
    return f"cannot connect to {address}: {problem}; check the address"
