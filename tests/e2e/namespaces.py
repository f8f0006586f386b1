"""Network namespaces joined by veth through a bridge: machines of a LAN, on one machine.

Needs root and iproute2. The bridge has a namespace of its own, so nothing appears among the
interfaces of the machine, and its firewall has no say. Names carry the process id.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

CARD = "eth0"
SUBNET = "10.87.0."
_numbers = itertools.count()


def ip(*words: str) -> str:
    """What the `ip` command says. Raises OSError when it fails."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def namespaces_missing() -> str:
    """Why namespaces cannot be made here; empty when they can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid():
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "no `ip` command here"
    try:
        with Namespaces("one"):
            return ""
    except OSError as error:
        return f"no network namespaces here: {error}"


class Namespaces:
    """A namespace for each of `names`, each with one card and one address on a common LAN.

    Multicast reaches everybody. All is removed at the end of the block, also after a failure.
    """

    def __init__(self, *names: str) -> None:
        self._tag = f"diffuse-{os.getpid()}-{next(_numbers)}"
        self._names = names
        self._made: list[str] = []

    def __enter__(self) -> Namespaces:
        try:
            self._add("lan")
            self._inside("lan", "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
            self._inside("lan", "link", "set", "bridge", "up")
            for name in self._names:
                self._plug(name)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _full(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def _add(self, name: str) -> None:
        ip("netns", "add", self._full(name))
        self._made.append(name)
        self._inside(name, "link", "set", "lo", "up")

    def _inside(self, name: str, *words: str) -> None:
        ip("-n", self._full(name), *words)

    def _port(self, name: str) -> str:
        return f"port{self._names.index(name)}"

    def _plug(self, name: str) -> None:
        self._add(name)
        port, full = self._port(name), self._full(name)
        peer = ("peer", "name", CARD, "netns", full)
        self._inside("lan", "link", "add", port, "type", "veth", *peer)
        self._inside("lan", "link", "set", port, "master", "bridge", "up")
        self._inside(name, "addr", "add", f"{self.address(name)}/24", "dev", CARD)
        self._inside(name, "link", "set", CARD, "up")
        self._inside(name, "route", "add", "default", "dev", CARD)

    def _remove(self) -> None:
        for name in reversed(self._made):
            # A namespace takes its interfaces with it.
            with contextlib.suppress(OSError):
                ip("netns", "del", self._full(name))
        self._made.clear()

    def address(self, name: str) -> str:
        """The IPv4 address of a namespace's card."""
        return f"{SUBNET}{self._names.index(name) + 1}"

    def within(self, name: str) -> Sequence[str]:
        """What to put before a command for it to run there; it keeps the process id."""
        return ("ip", "netns", "exec", self._full(name))

    def cut(self, name: str) -> None:
        """Pull the cable: packets of and to `name` are lost without a word."""
        self._inside("lan", "link", "set", self._port(name), "down")

    def mend(self, name: str) -> None:
        """Plug it in again."""
        self._inside("lan", "link", "set", self._port(name), "up")
