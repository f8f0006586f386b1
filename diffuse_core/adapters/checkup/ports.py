"""Whether a port can be listened at, and which program has it where not."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class PortFacts:
    """`problem` is empty where the port is free. `holder` is the program that has it, if told."""

    host: str
    port: int
    problem: str = ""
    taken: bool = False
    holder: str = ""
    pid: int | None = None


def port_facts(host: str, port: int) -> PortFacts:
    """Try to listen there, as a node would, for a moment."""
    try:
        # As bytes, which need no codec for names in other scripts: an address has none.
        name = host.encode("ascii")
        infos = socket.getaddrinfo(
            name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST
        )
    except (OSError, UnicodeError):
        return PortFacts(host, port, f"{host} is no address of an interface")
    family, kind, protocol, _, address = infos[0]
    try:
        with socket.socket(family, kind, protocol) as trial:
            if os.name == "posix":
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
            trial.listen(1)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        pid = holder_of(port) if taken else None
        reason = "in use" if taken else (error.strerror or str(error)).lower()
        return PortFacts(host, port, reason, taken, _name(pid), pid)
    return PortFacts(host, port)


def holder_of(port: int) -> int | None:
    """The process that listens at a TCP port; None where that is not told."""
    try:
        for one in psutil.net_connections(kind="tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port:
                return None if one.pid is None else int(one.pid)
    except (psutil.Error, OSError):
        pass
    return None


def _name(pid: int | None) -> str:
    if pid is None:
        return ""
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return ""
