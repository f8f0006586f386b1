"""Tells the service manager how a service is: systemd's protocol, sd_notify(3).

Datagrams of KEY=VALUE lines to the Unix socket that NOTIFY_SOCKET names; a name that begins with
`@` is one of Linux's abstract ones. Where nobody asked for it nothing is sent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from typing import TYPE_CHECKING

from diffuse_core.domain.plain_text import clean_line

if TYPE_CHECKING:
    from collections.abc import MutableMapping

log = logging.getLogger(__name__)

NOTIFY_SOCKET = "NOTIFY_SOCKET"
WATCHDOG_USEC = "WATCHDOG_USEC"
WATCHDOG_PID = "WATCHDOG_PID"
MAX_STATUS = 256
MICRO = 1_000_000


class Notifier:
    """Sends to one socket, or nowhere.

    Args:
        address: what NOTIFY_SOCKET says; None where nobody listens.
        watchdog_s: within how many seconds WATCHDOG=1 is expected again; None: it is not.
    """

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        self._address = address
        self.watchdog_s = watchdog_s if address is not None else None
        self._socket: socket.socket | None = None
        self._complained = False
        self._status = ""

    @property
    def wanted(self) -> bool:
        """Whether anybody listens."""
        return self._address is not None

    def ready(self, status: str) -> None:
        """The service does what it is started for."""
        self._status = clean_line(status)[:MAX_STATUS]
        self._send(f"READY=1\nSTATUS={self._status}\nMAINPID={os.getpid()}")

    def status(self, text: str) -> None:
        """What it is doing, in a line; sent when it says something new."""
        text = clean_line(text)[:MAX_STATUS]
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def stopping(self) -> None:
        """It is about to end."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """It still works: what the watchdog waits for."""
        self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Its end takes so much longer from now on; to be repeated while it does."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * MICRO)}")

    def close(self) -> None:
        """Send nothing more; idempotent."""
        self._address = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, text: str) -> None:
        if self._address is None:
            return
        try:
            if self._socket is None:
                self._socket = _open()
            name = self._address
            if name.startswith("@"):
                name = "\0" + name[1:]
            self._socket.sendto(text.encode(), name)
        except OSError as error:
            # A full or missing socket must not keep the service from its work.
            if not self._complained:
                self._complained = True
                log.warning("the service manager cannot be told how this runs: %s", error)


def take_notifier(environment: MutableMapping[str, str] = os.environ) -> Notifier:
    """What the environment asks for, which is taken out of it: no child is to answer for us."""
    address = environment.pop(NOTIFY_SOCKET, None)
    micros = environment.pop(WATCHDOG_USEC, "")
    meant = environment.pop(WATCHDOG_PID, "")
    watchdog = None
    if meant in ("", str(os.getpid())):
        with contextlib.suppress(ValueError):
            watchdog = int(micros) / MICRO
    if not address or address[0] not in "/@" or not hasattr(socket, "AF_UNIX"):
        return Notifier()
    return Notifier(address, watchdog if watchdog and watchdog > 0 else None)


def _open() -> socket.socket:
    flags = socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)
    made = socket.socket(socket.AF_UNIX, flags)
    made.setblocking(False)
    return made
