"""Multicast DNS with real sockets, on the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from ipaddress import IPv4Interface
from typing import TYPE_CHECKING

import pytest
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from diffuse_core.adapters import mdns
from diffuse_core.adapters.mdns import SERVICE, Announcement, MdnsLan, lan_interfaces
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import PROTOCOL_MAJOR
from diffuse_core.errors import Unreachable
from diffuse_core.ports import LanNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LOOPBACK = (IPv4Interface("127.0.0.1/8"),)
ALICE = Identity(b"a" * 32).node
# Names are probed for half a second, and told a second later.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def works() -> str:
    async def ask() -> None:
        lan = MdnsLan(LOOPBACK, bytes(16), keyed=False)
        await lan.open(lambda _: None, lambda _: None)
        await lan.close()

    try:
        asyncio.run(ask())
    except Unreachable as error:
        return str(error)
    return ""


@pytest.fixture(scope="module", autouse=True)
def multicast() -> None:
    if problem := works():
        pytest.skip(problem)


class Street:
    """Lans of one test, closed at its end, and what the last of them found."""

    def __init__(self, stack: contextlib.AsyncExitStack) -> None:
        self.stack = stack
        # Whatever else runs on this machine is on other networks.
        self.tag = secrets.token_bytes(16)
        self.found: asyncio.Queue[LanNode] = asyncio.Queue()
        self.lost: asyncio.Queue[LanNode] = asyncio.Queue()

    async def announce(
        self, port: int = 1234, tag: bytes = b"", *, keyed: bool = False
    ) -> MdnsLan:
        said = Announcement(ALICE, port)
        lan = MdnsLan(LOOPBACK, tag or self.tag, keyed=keyed, announcement=said)
        self.stack.push_async_callback(lan.close)
        await lan.open(lambda _: None, lambda _: None)
        await lan.announce()
        return lan

    async def look(self, *, keyed: bool = False) -> MdnsLan:
        lan = MdnsLan(LOOPBACK, self.tag, keyed=keyed)
        self.stack.push_async_callback(lan.close)
        await lan.open(self.found.put_nowait, self.lost.put_nowait)
        return lan

    async def say(self, name: str, **changes: object) -> None:
        """Announce anything at all."""
        zeroconf = AsyncZeroconf(interfaces=["127.0.0.1"])
        self.stack.push_async_callback(zeroconf.async_close)
        properties = {"v": str(PROTOCOL_MAJOR), "net": self.tag.hex(), "id": ALICE.hex()}
        fields = {
            "addresses": [LOOPBACK[0].ip.packed],
            "port": 4321,
            "properties": properties | changes.pop("properties", {}),
            "server": f"{name}.local.",
        } | changes
        info = AsyncServiceInfo(SERVICE, f"{name}.{SERVICE}", **fields)
        await (await zeroconf.async_register_service(info))


@pytest.fixture
async def street() -> AsyncIterator[Street]:
    async with contextlib.AsyncExitStack() as stack:
        yield Street(stack)


async def test_who_is_announced_is_found_and_lost_again(street: Street) -> None:
    await street.look()
    announced = await street.announce()
    expected = LanNode(("127.0.0.1:1234",), ALICE)
    assert await street.found.get() == expected
    await announced.close()
    assert await street.lost.get() == expected


async def test_who_looks_later_finds_who_was_there_before(street: Street) -> None:
    await street.announce()
    await street.look()
    assert (await street.found.get()).node == ALICE


async def test_on_a_network_with_a_key_no_id_is_shown(street: Street) -> None:
    await street.look(keyed=True)
    lan = await street.announce(keyed=True)
    assert await street.found.get() == LanNode(("127.0.0.1:1234",), None)
    assert ALICE.hex()[:12] not in lan._own


async def test_other_networks_and_what_makes_no_sense_are_passed_over(street: Street) -> None:
    """All of it is on the street before the one good node, which alone is found."""
    wrong = (
        {"properties": {"v": str(PROTOCOL_MAJOR + 1)}},
        {"properties": {"id": "short"}},
        {"properties": {"id": ALICE.hex().upper()}},
        {"properties": {"net": "x"}},
        {"properties": {"key": "1"}},
        {"port": 0},
        {"addresses": [bytes([8, 8, 8, 8])]},
    )
    await street.look()
    await asyncio.gather(
        street.announce(1, b"o" * 16),
        street.announce(2, keyed=True),
        *(street.say(f"w{at}-{secrets.token_hex(4)}", **said) for at, said in enumerate(wrong)),
    )
    await street.announce(7)
    assert (await street.found.get()).addresses == ("127.0.0.1:7",)
    assert street.found.empty()


async def test_a_crowd_is_bounded(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mdns, "MAX_SEEN", 2)
    lan = await street.look()
    await asyncio.gather(*(street.say(f"n{i}-{secrets.token_hex(4)}") for i in range(4)))
    for _ in range(2):
        await street.found.get()
    assert len(lan._seen) == 2


async def test_nothing_is_left_when_it_is_closed() -> None:
    before = set(threading.enumerate())
    tasks = asyncio.all_tasks()
    async with contextlib.AsyncExitStack() as stack:
        street = Street(stack)
        await street.look()
        announced = await street.announce()
        await street.found.get()
        async with asyncio.timeout(mdns.CLOSE_S):
            await announced.close()
        await announced.close()
    assert asyncio.all_tasks() == tasks
    extra = {thread for thread in threading.enumerate() if "asyncio" not in thread.name}
    assert extra <= before


async def test_a_machine_without_a_lan_says_so() -> None:
    lan = MdnsLan((), bytes(16), keyed=False)
    with pytest.raises(Unreachable, match="on no LAN"):
        await lan.open(lambda _: None, lambda _: None)
    await lan.announce()
    await lan.close()


# The library leaves a socket to the garbage collector there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_address_that_is_not_ours_is_a_reason_and_no_crash() -> None:
    lan = MdnsLan((IPv4Interface("203.0.113.7/24"),), bytes(16), keyed=False)
    with pytest.raises(Unreachable, match="does not work here"):
        await lan.open(lambda _: None, lambda _: None)
    await lan.close()


def test_who_listens_on_loopback_is_on_no_lan() -> None:
    assert lan_interfaces("127.0.0.1") == ()
    assert lan_interfaces("::1") == lan_interfaces("::") == ()
    assert not any(address.is_loopback for address in lan_interfaces(""))
