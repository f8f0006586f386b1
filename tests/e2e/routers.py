"""Homes behind routers: namespaces that dial out and that nobody outside can dial.

Each home is one machine behind a router of its own, which joins the common LAN of `Namespaces`:
the outside. The router forwards what the machine sends and the replies to it. Packets from
outside to one of the ports that the machine may listen on are refused, or swallowed, by a policy
rule of routing: replies go to ports that the kernel gives to those who dial, which lie higher. So
no firewall and no address translation is needed, and each machine keeps an address of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tests.e2e.namespaces import CARD, SUBNET, Namespaces, ip

if TYPE_CHECKING:
    from collections.abc import Mapping

Refusal = Literal["prohibit", "blackhole"]
"""Whether who dials in hears at once that it may not, or nothing ever."""

LISTENING = "1-32767"
"""Ports that nobody outside reaches; the kernel's own choices for those who dial lie above."""
LEG = "home"
"""The router's card on the side of the home."""
FORWARD = "echo 1 > /proc/sys/net/ipv4/ip_forward"


class Neighbourhood(Namespaces):
    """Machines outside, each at once on the LAN, and `homes` behind routers.

    All names, of machines and of homes, are given to `address` and `within` alike.
    """

    def __init__(self, *outside: str, homes: Mapping[str, Refusal]) -> None:
        self._homes = dict(homes)
        super().__init__(*outside, *(_router(home) for home in homes))

    def __enter__(self) -> Neighbourhood:
        super().__enter__()
        try:
            for home, refusal in self._homes.items():
                self._build(home, refusal)
        except BaseException:
            self._remove()
            raise
        return self

    def address(self, name: str) -> str:
        """The IPv4 address of a machine's card."""
        return f"{self._subnet(name)}2" if name in self._homes else super().address(name)

    def _subnet(self, home: str) -> str:
        # The next number after the outside's, and one for each home.
        first, second, _, _ = SUBNET.split(".")
        return f"{first}.{int(second) + 1}.{list(self._homes).index(home)}."

    def _build(self, home: str, refusal: Refusal) -> None:
        router, subnet = _router(home), self._subnet(home)
        self._add(home)
        far = ("peer", "name", CARD, "netns", self._full(home))
        self._inside(router, "link", "add", LEG, "type", "veth", *far)
        self._inside(router, "addr", "add", f"{subnet}1/24", "dev", LEG)
        self._inside(router, "link", "set", LEG, "up")
        self._inside(home, "addr", "add", f"{subnet}2/24", "dev", CARD)
        self._inside(home, "link", "set", CARD, "up")
        self._inside(home, "route", "add", "default", "via", f"{subnet}1")
        for name in self._names:
            if name != router:
                way = ("via", super().address(router))
                self._inside(name, "route", "add", f"{subnet}0/24", *way)
        ip("netns", "exec", self._full(router), "sh", "-c", FORWARD)
        to = ("to", f"{subnet}2", "iif", CARD, "ipproto", "tcp", "dport", LISTENING)
        self._inside(router, "rule", "add", *to, refusal)

    def open(self, home: str) -> None:
        """Let everybody dial in, as if the home's owner had forwarded the ports."""
        subnet = self._subnet(home)
        self._inside(_router(home), "rule", "del", "to", f"{subnet}2", "iif", CARD)


def _router(home: str) -> str:
    return f"router-{home}"
